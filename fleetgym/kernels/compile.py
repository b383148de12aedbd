"""Give every kernel its ``jit`` decorator, and find a place where compiled code can be kept.

Numba keys its cache by the file that holds a function, so an edit of a *callee* in another file would go
unseen. Here the cache folder's name is a digest of all kernel sources, of where they lie and of the compiler's
version: any edit starts a new folder, and so does another installation, for Numba does not find what was compiled
elsewhere. Where no folder is writable the kernels are compiled afresh in each process.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import llvmlite.binding
import numba
import numba.core.cgutils
import numba.core.compiler_lock
import numba.core.typing

from fleetgym.kernels.parts import KernelCompiler, PartCompiler

_SOURCES = Path(__file__).parent


def source_digest() -> str:
    """Return a digest of every kernel source and of its place, of Numba's version and of the processor.

    Returns
    -------
    str
        Sixteen hexadecimal digits.

    Examples
    --------
    >>> len(source_digest())
    16
    """
    digest = hashlib.sha256()
    profile = os.environ.get("FLEETGYM_PROFILE", "")  # changes what is compiled, see `kernels.profile`
    place = str(_SOURCES)  # Numba looks nowhere else for what it compiled there
    for part in (
        numba.__version__,
        platform.python_version(),
        platform.machine(),
        _cpu_name(),
        profile,
        place,
    ):
        digest.update(part.encode() + b"\0")
    for path in sorted(_SOURCES.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _cpu_name() -> str:
    return str(llvmlite.binding.get_host_cpu_name())


def _candidates() -> Iterator[Path]:
    """Folders to try, best first."""
    for name in ("FLEETGYM_CACHE_DIR", "NUMBA_CACHE_DIR"):
        if os.environ.get(name):
            yield Path(os.environ[name])
    if os.environ.get("XDG_CACHE_HOME"):
        yield Path(os.environ["XDG_CACHE_HOME"]) / "fleetgym"
    with contextlib.suppress(RuntimeError):  # no home directory can be determined
        yield Path.home() / ".cache" / "fleetgym"
    user = str(os.getuid()) if hasattr(os, "getuid") else "user"
    yield Path(tempfile.gettempdir()) / f"fleetgym-{user}"


def _is_ours_and_writable(folder: Path) -> bool:
    """Create `folder` if need be; tell whether we own it and can write to it.

    Compiled code is loaded from there, so a folder that somebody else owns is refused.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
            return False
        with tempfile.NamedTemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@functools.cache
def cache_folder() -> Path | None:
    """Return the folder that holds this version's compiled kernels, or None where none is writable.

    ``FLEETGYM_CACHE_DIR`` and ``NUMBA_CACHE_DIR`` are tried first, then the user's cache folder, then a
    temporary one.
    """
    digest = source_digest()
    for base in _candidates():
        folder = base / f"kernels-{digest}"
        if _is_ours_and_writable(folder):
            return folder
    return None


def announce_compilation(last_kernel: Any) -> None:
    """Print one line to stderr if `last_kernel`, which needs all the others, was never compiled here.

    Parameters
    ----------
    last_kernel : callable
        A function that `jit` returned.
    """
    if last_kernel.signatures or not sys.stderr or _announced:
        return
    folder = cache_folder()
    name = last_kernel.py_func.__qualname__
    if folder is None or not any(folder.rglob(f"*.{name}-*.nbi")):
        print(
            "fleetgym: compiling kernels (once per version, about half a minute) ...",
            file=sys.stderr,
            flush=True,
        )
        _announced.append(True)


_announced: list[bool] = []  # said in this process


def jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile with Numba: no Python objects, no interpreter lock, cached where that is possible.

    Parameters
    ----------
    function : callable, optional
        The kernel. Its module's sources must be plain functions over arrays and scalars.
    **options
        Passed on to `numba.njit`.

    Returns
    -------
    callable
        The compiled dispatcher, or a decorator when `function` is None.

    Examples
    --------
    >>> @jit
    ... def double(x):
    ...     return 2.0 * x
    >>> double(3.0)
    6.0
    """
    if function is None:
        return functools.partial(jit, **options)
    folder = cache_folder()
    options = {"cache": folder is not None, "nogil": True, "error_model": "numpy", **options}
    options["no_cfunc_wrapper"] = True  # nobody calls kernels from C
    if function.__name__.startswith("_"):  # only called by other kernels: a third less to compile
        options["no_cpython_wrapper"] = True
    config: Any = numba.config
    elsewhere = config.CACHE_DIR
    try:
        config.CACHE_DIR = str(folder or "")
        kernel = numba.njit(**options)(function)
    except RuntimeError:  # no cache locator, as for functions typed at a prompt
        kernel = numba.njit(**{**options, "cache": False})(function)
    finally:
        config.CACHE_DIR = elsewhere  # other people's kernels stay where they were
    compile_or_load = kernel.compile

    def compile_after_callees(signature: Any) -> Any:
        _Distant.locate_all()  # also what is loaded from the cache may refer to them
        return compile_or_load(signature)

    kernel.compile = compile_after_callees
    return kernel


class _Distant:
    """A kernel that others call by its symbol; compiled once any kernel is, so that imports compile nothing."""

    _waiting: ClassVar[list[_Distant]] = []  # callees before their callers
    _is_locating: ClassVar[bool] = False

    def __init__(self, kernel: Any, types: tuple[Any, ...]):
        self.kernel, self.types = kernel, types
        self.symbol = f"{kernel.__module__}.{kernel.py_func.__qualname__}"
        self.signature: Any = None
        self._waiting.append(self)

    @classmethod
    def locate_all(cls) -> None:
        """Compile what waits, and tell the linker where it is."""
        if not cls._waiting:
            return
        with numba.core.compiler_lock.global_compiler_lock:
            if cls._is_locating:  # one of them is being compiled; its callees came before it
                return
            cls._is_locating = True
            try:
                while cls._waiting:
                    cls._waiting[0]._locate()
                    del cls._waiting[0]
            finally:
                cls._is_locating = False

    def _locate(self) -> None:
        announce_compilation(self.kernel)
        self.kernel.compile(self.types)
        compiled = self.kernel.overloads[self.types]
        address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
        llvmlite.binding.add_symbol(self.symbol, address)
        self.signature = numba.core.typing.signature(compiled.signature.return_type, *self.types)

    def call(self, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Generate the code of a call."""
        convention, result = context.call_conv, signature.return_type
        kind = convention.get_function_type(result, signature.args)
        callee = numba.core.cgutils.get_or_insert_function(builder.module, kind, self.symbol)
        status, value = convention.call_function(builder, callee, result, signature.args, arguments)
        with numba.core.cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return value


def separate(kernel: Any, *examples: Any) -> Any:
    """Keep a kernel apart from its callers, for the types of `examples`; return what they call it by.

    What a kernel calls is otherwise joined to it and optimised once more, at each level of calls. This keeps
    a large callee apart: its caller refers to it by a symbol, known in this process once any kernel is compiled or
    loaded.

    Parameters
    ----------
    kernel : callable
        A function that `jit` returned.
    *examples
        Arguments of the types it will get.

    Returns
    -------
    callable
        To be called only from kernels that `jit` returned.

    Examples
    --------
    >>> @jit
    ... def square(x):
    ...     return x * x
    >>> distant_square = separate(square, 1.0)
    >>> @jit
    ... def fourth_power(x):
    ...     return distant_square(distant_square(x))
    >>> fourth_power(2.0)
    16.0
    """
    callee = _Distant(kernel, tuple(numba.typeof(example) for example in examples))

    def distant(typing_context: Any, *arguments: Any) -> Any:
        return callee.signature, callee.call

    names = ["typing_context", *inspect.signature(kernel.py_func).parameters]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    distant.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])  # type: ignore[attr-defined]
    distant.__name__ = kernel.py_func.__name__
    return numba.extending.intrinsic(distant)


def lean() -> dict[str, Any]:
    """Return options for a kernel that allocates nothing and whose parts are `inner`: they save compile time.

    It is optimised once (see `kernels.parts`), without reference counts where this Numba can leave them out.

    Returns
    -------
    dict
        Options for `jit`.
    """
    import numba.core.options

    counts = {"_nrt": False} if hasattr(numba.core.options.DefaultOptions, "_nrt") else {}
    return {"pipeline_class": KernelCompiler, **counts}


# Whoever calls a kernel loads all of it from one file of the cache, so that files for its parts would be idle.
inner: Any = functools.partial(
    jit, **{**lean(), "cache": False, "no_cpython_wrapper": True, "pipeline_class": PartCompiler}
)
# A function with one caller joins it: passing many arrays on would take as long as many of them run.
once: Any = functools.partial(inner, forceinline=True)
# What most calls never reach is kept apart by `separate`, or each caller would optimise it again.
apart: Any = functools.partial(jit, **lean())
