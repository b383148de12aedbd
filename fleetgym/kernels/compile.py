"""The decorators of all kernels: plain functions over arrays go in, compiled functions come out.

- `jit` compiles what Python calls, and keeps it on disk.
- `inline` compiles what only kernels call. It is not kept, since each caller keeps its own copy.
- `always_inline` does so for a function with one caller. To pass many arrays on would take as long as many of them run.
- `extern` compiles a large function once, and lets kernels call it by a symbol. Otherwise LLVM would optimise it again
  at each level of callers, which takes most of the time of a compilation.

An import compiles nothing. Numba tells when it begins to load or compile a function (`numba.core.event`); that is
when `extern` functions are loaded or compiled first, so that whatever comes next finds their symbols.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding
import llvmlite.ir
import numba
import numba.core.event
import numba.extending

from fleetgym.kernels.cache import cache_folder, is_sound, seal, source_digest
from fleetgym.kernels.pointers import borrowed_type

__all__ = ["always_inline", "cache_folder", "check_cache", "extern", "inline", "jit", "source_digest"]

_OPTIONS: dict[str, Any] = {"error_model": "numpy"}  # no division raises


@contextlib.contextmanager
def _kept_in(folder: Path | None) -> Iterator[None]:
    """Let Numba keep what is decorated meanwhile in `folder`; other people's kernels stay where they were."""
    config: Any = numba.config
    elsewhere = config.CACHE_DIR
    config.CACHE_DIR = str(folder or "")
    try:
        yield
    finally:
        config.CACHE_DIR = elsewhere


def jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile with Numba: no Python objects, no interpreter lock, kept on disk where that is possible.

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
    options = {"cache": folder is not None, "nogil": True, **_OPTIONS, **options}
    options["no_cfunc_wrapper"] = True  # nobody calls kernels from C
    if function.__name__.startswith("_"):  # only called by other kernels: a third less to compile
        options["no_cpython_wrapper"] = True
    _ours.add(function.__code__)
    with _kept_in(folder):
        try:
            return numba.njit(**options)(function)
        except RuntimeError:  # no cache locator, as for functions typed at a prompt
            return numba.njit(**{**options, "cache": False})(function)


inline: Any = functools.partial(jit, cache=False, no_cpython_wrapper=True)
always_inline: Any = functools.partial(inline, forceinline=True)


class _Extern:
    """A function that kernels call by its symbol."""

    def __init__(self, function: Any, returns: Any, examples: tuple[Any, ...]):
        self.function = function
        self.symbol = f"{function.__module__}.{function.__qualname__}"
        self.signature = numba.typeof(returns)(
            *(borrowed_type(numba.typeof(example)) for example in examples)
        )
        self._compiled: list[Any] = []  # keeps the code alive

    def link(self) -> None:
        """Load or compile the function, and tell the linker where it is."""
        folder = cache_folder()
        with _kept_in(folder):
            try:
                compiled = numba.cfunc(self.signature, cache=folder is not None, **_OPTIONS)(self.function)
            except (OSError, RuntimeError):  # it cannot be kept: the disk is full, or there is no source file
                compiled = numba.cfunc(self.signature, **_OPTIONS)(self.function)
        if compiled.cache_hits == 0:
            _note_compilation(self.function)
            if folder is not None:
                seal(folder, [_file_start(self.function)])
        llvmlite.binding.add_symbol(self.symbol, compiled.address)
        self._compiled.append(compiled)

    def call(self, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Generate the code of a call."""
        values = [context.get_value_type(kind) for kind in signature.args]
        kind = llvmlite.ir.FunctionType(context.get_value_type(signature.return_type), values)
        module = builder.module
        callee = module.globals.get(self.symbol) or llvmlite.ir.Function(module, kind, self.symbol)
        return builder.call(callee, arguments)


def extern(function: Any, returns: Any, *examples: Any) -> Any:
    """Compile a function once for all kernels that call it; return what they call it by.

    Parameters
    ----------
    function : callable
        A plain function, or a kernel that `jit` returned.
    returns
        A result of the type that it returns.
    *examples
        Arguments of the types that it takes.

    Returns
    -------
    callable
        To be called only from kernels.

    Examples
    --------
    >>> def square(x):
    ...     return x * x
    >>> extern_square = extern(square, 1.0, 1.0)
    >>> @jit
    ... def fourth_power(x):
    ...     return extern_square(extern_square(x))
    >>> fourth_power(2.0)
    16.0
    """
    function = getattr(function, "py_func", function)
    callee = _Extern(function, returns, examples)
    _unlinked.append(callee)

    def type_call(typing_context: Any, *arguments: Any) -> Any:
        return callee.signature, callee.call

    names = ["typing_context", *inspect.signature(function).parameters]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    type_call.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])  # type: ignore[attr-defined]
    type_call.__name__ = function.__name__
    return numba.extending.intrinsic(type_call)


_ours: set[Any] = set()  # code of all kernels
_unlinked: list[_Extern] = []  # callees before their callers
_compiled: list[str] = []  # names of kernels that this process had to compile


class _Thread(threading.local):
    """What Numba does in one thread."""

    depth = 0  # how often it holds the compiler's lock
    is_linking = False

    def __init__(self) -> None:
        self.unsealed: set[str] = set()  # how the names of files begin that are being written


_thread = _Thread()


def _file_start(function: Any) -> str:
    """Return how the names of the files begin that Numba keeps a function in."""
    name = f"{Path(inspect.getfile(function)).stem}.{function.__qualname__}-"
    return name.replace("<", "").replace(">", "")


def _note_compilation(function: Any) -> None:
    """Remember that a kernel is compiled, and say so the first time."""
    if not _compiled and sys.stderr:
        kept = "once per version, a minute or two"
        if cache_folder() is None:
            kept = "in each process, since no cache folder can be written; set FLEETGYM_CACHE_DIR"
        print(f"fleetgym: compiling kernels ({kept}) ...", file=sys.stderr, flush=True)
    _compiled.append(f"{function.__module__}.{function.__qualname__}")


def _link_all() -> None:
    """Link what waits. Another thread may do so at the same time: that costs time and does no harm."""
    if _thread.is_linking or not _unlinked:
        return
    _thread.is_linking = True
    try:
        for callee in tuple(_unlinked):
            callee.link()
            with contextlib.suppress(ValueError):
                _unlinked.remove(callee)
    finally:
        _thread.is_linking = False


class _OnLock(numba.core.event.Listener):
    """Numba takes the lock to load or compile a function, and has written its files when it lets go."""

    def on_start(self, event: Any) -> None:
        _link_all()
        _thread.depth += 1

    def on_end(self, event: Any) -> None:
        _thread.depth = max(0, _thread.depth - 1)
        if _thread.depth == 0 and _thread.unsealed:
            folder = cache_folder()
            if folder is not None:
                seal(folder, _thread.unsealed)
            _thread.unsealed.clear()


class _OnCompilation(numba.core.event.Listener):
    """Numba compiles a function."""

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if function.__code__ in _ours:
            _note_compilation(function)
            _thread.unsealed.add(_file_start(function))

    def on_end(self, event: Any) -> None:
        pass


numba.core.event.register("numba:compiler_lock", _OnLock())
numba.core.event.register("numba:compile", _OnCompilation())


class CacheState(NamedTuple):
    """What `check_cache` found."""

    folder: Path | None  # None: no folder can be written
    sound: int  # files that are what was sealed
    damaged: tuple[Path, ...]  # files that are not, or not yet; the next process removes them
    compiled: tuple[str, ...]  # kernels that this process had to compile


def check_cache() -> CacheState:
    """Return the state of the compiled kernels' folder, and what this process had to compile.

    Whoever asks whether the cache is warm runs the kernels in question first. The cache was warm for them if nothing
    was compiled.

    Returns
    -------
    CacheState
        Folder, numbers of sound files, damaged files, and names of compiled kernels.

    Examples
    --------
    >>> check_cache().folder == cache_folder()
    True
    """
    folder = cache_folder()
    files = [] if folder is None else list(folder.rglob("*.nb[ic]"))
    damaged = tuple(path for path in files if not is_sound(path))
    return CacheState(folder, len(files) - len(damaged), damaged, tuple(_compiled))
