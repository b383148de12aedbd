"""Decorate the functions that Numba compiles: plain functions over arrays become kernels.

- `jit` compiles what Python calls, and keeps it on disk.
- `inline` compiles what only kernels call. It is not kept, since each caller keeps its own copy.
- `always_inline` does so for a function with one caller. To pass many arrays on would take as long as many of them run.
- `extern` compiles a large function once, and lets kernels call it by a symbol. Otherwise LLVM would optimise it again
  at each level of callers, which takes most of the time of a compilation.
- `entry` says with which types Python calls a large kernel, so that it can be compiled beforehand.

An import compiles nothing. Numba tells when it begins to load or compile a function (`numba.core.event`). Then all
`extern` and `entry` functions that are not kept yet are compiled by several processes, which need not wait for one
another: a call by a symbol needs the callee only when it runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numba

from fleetgym.kernels import cache
from fleetgym.kernels.cache import cache_folder, is_kernel, is_sound, locked, read_seals, seal, source_digest
from fleetgym.kernels.lowlevel import Listener, borrowed_type, call_by_symbol, name_address, register, widen
from fleetgym.kernels.parallel import compile_apart, num_cores

__all__ = [
    "always_inline",
    "cache_folder",
    "check_cache",
    "compile_seconds",
    "entry",
    "extern",
    "inline",
    "jit",
    "source_digest",
]

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
            dispatcher = numba.njit(**options)(function)
        except RuntimeError:  # no cache locator, as for functions typed at a prompt
            dispatcher = numba.njit(**{**options, "cache": False})(function)
    widen(dispatcher)
    return dispatcher


inline: Any = functools.partial(jit, cache=False, no_cpython_wrapper=True)
always_inline: Any = functools.partial(inline, inline="always")


class _Part:
    """A function that is compiled on its own, for known types, and kept in files of its own."""

    def __init__(self, function: Any, signature: Any):
        self.function, self.signature = function, signature
        self.name = f"{function.__module__}.{function.__qualname__}"
        _parts[self.name] = self
        _unlinked.append(self)

    def compile(self) -> None:
        """Load the function, or compile and keep it."""
        raise NotImplementedError

    def link(self) -> None:
        """Make the function known to those that call it."""
        raise NotImplementedError


class _Extern(_Part):
    """A function that kernels call by its symbol."""

    _compiled: Any = None  # keeps the code alive

    def compile(self) -> None:
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
        self._compiled = compiled

    def link(self) -> None:
        self.compile()
        name_address(self.name, self._compiled.address)


class _Entry(_Part):
    """A kernel that Python calls."""

    def __init__(self, dispatcher: Any, signature: Any):
        super().__init__(dispatcher.py_func, signature)
        self._dispatcher = dispatcher

    def compile(self) -> None:
        self._dispatcher.compile(self.signature)

    def link(self) -> None:
        """Do nothing: Numba loads it at its first call."""


def entry(dispatcher: Any, *examples: Any) -> None:
    """Say with which types Python calls a kernel, so that it can be compiled together with what it calls.

    Parameters
    ----------
    dispatcher : callable
        From `jit`.
    *examples
        Arguments of these types.
    """
    _Entry(dispatcher, tuple(map(numba.typeof, examples)))


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
    taken = [borrowed_type(numba.typeof(example)) for example in examples]
    callee = _Extern(function, numba.typeof(returns)(*taken))
    return call_by_symbol(function, callee.name, callee.signature)


_ours: set[Any] = set()  # code of all kernels
_is_server = False  # whether this process compiles for another one
_announced: list[bool] = []
_parts: dict[str, _Part] = {}
_unlinked: list[_Part] = []  # callees before their callers
_compiled: list[str] = []  # names of kernels that were compiled for this process


class _Thread(threading.local):
    """What Numba does in one thread."""

    depth = 0  # how often it holds the compiler's lock
    is_linking = False
    spent_s = 0.0  # CPU seconds on kernels
    began_s = 0.0  # when it began to compile a kernel
    compiling = 0  # how many kernels it compiles, each for the next

    def __init__(self) -> None:
        self.unsealed: set[str] = set()  # how the names of files begin that are being written


_thread = _Thread()


def _file_start(function: Any) -> str:
    """Return how the names of the files begin that Numba keeps a function in."""
    name = f"{Path(inspect.getfile(function)).stem}.{function.__qualname__}-"
    return name.replace("<", "").replace(">", "")


def _note_compilation(function: Any) -> None:
    """Remember that this process compiles a kernel, and say so the first time."""
    _announce()
    _compiled.append(f"{function.__module__}.{function.__qualname__}")


def _announce() -> None:
    """Say once that kernels are compiled."""
    if not _announced and sys.stderr:
        kept = "once per version, half a minute on two cores"
        if cache_folder() is None:
            kept = "in each process, since no cache folder can be written; set FLEETGYM_CACHE_DIR"
        print(f"fleetgym: compiling kernels ({kept}) ...", file=sys.stderr, flush=True)
    _announced.append(True)


def _build(folder: Path, parts: Sequence[_Part]) -> None:
    """Let several processes compile what is not kept yet, callers first, since these are larger."""
    lock, count = threading.Lock(), 0

    def note(name: str) -> None:
        nonlocal count
        with lock:
            count += 1
            _compiled.append(name)
            if sys.stderr and sys.stderr.isatty():
                end = "\n" if count == len(parts) else ""
                print(f"\r{count} of {len(parts)} parts", end=end, file=sys.stderr, flush=True)

    _announce()
    modules = dict.fromkeys(part.function.__module__ for part in _parts.values())
    compile_apart([part.name for part in reversed(parts)], list(modules), folder, note)


def _missing(folder: Path) -> list[_Part]:
    """Return the parts that wait and are not kept in a folder; those of a script are not found by other processes."""
    names = [path.name for path in folder.rglob("*.nbi")]
    return [
        part
        for part in _unlinked
        if part.function.__module__ != "__main__"
        and not any(name.startswith(_file_start(part.function)) for name in names)
    ]


def _link_all() -> None:
    """Compile and link what waits. Another thread may do so at the same time: that costs time and does no harm."""
    if _thread.is_linking or _is_server or not _unlinked:
        return
    _thread.is_linking = True
    began = _cpu_seconds()
    try:
        folder = cache_folder()
        if folder is not None:
            cache.examine(folder)
        with locked(folder) if folder is not None and _missing(folder) else contextlib.nullcontext():
            parts = [] if folder is None else _missing(folder)  # of those that no other process has compiled
            if folder is not None and len(parts) > 1 and num_cores() > 1:
                _build(folder, parts)
            for part in tuple(_unlinked):
                part.link()
                with contextlib.suppress(ValueError):
                    _unlinked.remove(part)
    finally:
        _thread.is_linking = False
        _thread.spent_s += _cpu_seconds() - began


def serve(folder: str, modules: Sequence[str]) -> None:
    """Compile the parts whose names come in, one a line, and answer each with its name.

    Nothing that is compiled here runs. So the linker is told some place for each symbol.

    Parameters
    ----------
    folder : str
        Where to keep them.
    modules : sequence of str
        Modules to import.
    """
    global _is_server
    _is_server = True
    cache.adopt(Path(folder))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a module prints is no answer
    for module in modules:
        importlib.import_module(module)
    somewhere = ctypes.cast(ctypes.pythonapi.Py_IsInitialized, ctypes.c_void_p).value or 1
    for name in _parts:
        name_address(name, somewhere)
    for line in sys.stdin:
        _parts[line.strip()].compile()
        print(line.strip(), file=answers, flush=True)


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and of the children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def compile_seconds() -> float:
    """Return the CPU seconds that this thread has spent on loading and compiling kernels."""
    return _thread.spent_s


class _OnLock(Listener):
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


class _OnCompilation(Listener):
    """Numba compiles a function."""

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if function.__code__ in _ours:
            if _thread.compiling == 0:
                _thread.began_s = _cpu_seconds()
            _thread.compiling += 1
            _note_compilation(function)
            _thread.unsealed.add(_file_start(function))

    def on_end(self, event: Any) -> None:
        if event.data["dispatcher"].py_func.__code__ in _ours:
            _thread.compiling -= 1
            if _thread.compiling == 0 and not _thread.is_linking:
                _thread.spent_s += _cpu_seconds() - _thread.began_s


register("numba:compiler_lock", _OnLock())
register("numba:compile", _OnCompilation())


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
    files = [] if folder is None else list(filter(is_kernel, folder.rglob("*")))
    seals = set() if folder is None else read_seals(folder)
    damaged = tuple(path for path in files if not is_sound(path, seals))
    return CacheState(folder, len(files) - len(damaged), damaged, tuple(_compiled))
