"""Compile kernels quickly: a typed function in; optimised machine code out, or for a part of one plain code to join.

Numba optimises every function it compiles three times over, together with all that it calls, and makes machine code
of it. Nobody runs a part of a kernel: it is neither optimised nor turned into machine code here, but joins its callers
as it is. What all parts were joined to is optimised once. Together that saves more than a third of LLVM's time.

Numba itself takes twice as long as LLVM. Some of that is for what kernels have none of (closures, expressions over
arrays), some for comparing one function's options with another's, some for Python's garbage collector, which finds next
to nothing while a compiler builds up its data.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import numba.core.cpu
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering, NopythonRewrites
from numba.core.untyped_passes import InlineClosureLikes


@contextlib.contextmanager
def _garbage_kept() -> Iterator[None]:
    """Let no garbage be collected meanwhile."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Flags(Flags):
    """Numba's options of one function, compared by those that are set.

    Numba looks them up at every operator and every call of every function; its own comparison writes out all.
    """

    def __hash__(self) -> int:
        return hash(_Flags)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Flags) and bool(self._values == other._values)


class _KernelLibrary(JITCodeLibrary):
    """Code that is optimised when all of it is there, and only then."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        manager, builder = self._codegen._module_pass_manager()
        manager.run(self._final_module, builder)


class _PartLibrary(_KernelLibrary):
    """Code that other libraries link to; neither optimiser nor machine ever sees it by itself."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _KernelLowering(NativeLowering):
    """Lower a function into a library that is optimised once."""

    _name = "kernel_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _KernelLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return bool(super().run_pass(state))


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):
    """Lower a function and make it known to its callers, without an address."""

    _name = "part_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        lowered, library = state["cr"], state.library
        about = lowered.fndesc
        name = about.qualname.split(".")[-1]
        key = numba.core.cpu._dynfunc.make_function(
            about.lookup_module(), name, "", 0, lowered.env, (library,)
        )
        state.targetctx.insert_user_function(key, about, [library])
        state["cr"] = lowered._replace(cfunc=key)
        return True


class KernelCompiler(CompilerBase):
    """Numba's compiler without what kernels do not need; to be given to `numba.njit` as `pipeline_class`."""

    lowering: type = _KernelLowering

    def __init__(
        self, typing: Any, target: Any, library: Any, args: Any, return_type: Any, flags: Flags, locals: Any
    ) -> None:
        super().__init__(typing, target, library, args, return_type, _Flags(flags), locals)

    def compile_extra(self, func: Any) -> Any:
        """Compile one function, and all that it calls."""
        with _garbage_kept():
            return super().compile_extra(func)

    def define_pipelines(self) -> list[Any]:
        """Return Numba's passes, with our own last step."""
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [
            (self.lowering if step is NativeLowering else step, about)
            for step, about in manager.passes
            if step not in (InlineClosureLikes, NopythonRewrites)
        ]
        manager._finalized = False
        manager.finalize()
        return [manager]


class PartCompiler(KernelCompiler):
    """Compiler of a function that only kernels call."""

    lowering = _PartLowering
