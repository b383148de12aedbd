"""Compile kernels quickly: a typed function in; optimised machine code out, or for a part of one plain code to join.

Numba optimises every function it compiles three times over, together with all that it calls, and makes machine code
of it. Nobody runs a part of a kernel: it is neither optimised nor turned into machine code here, but joins its callers
as it is. What all parts were joined to is optimised once. Together that saves more than a third of LLVM's time.
"""

from __future__ import annotations

from typing import Any

import numba.core.cpu
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


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
    """Numba's compiler, but for its last step; to be given to `numba.njit` as `pipeline_class`."""

    lowering: type = _KernelLowering

    def define_pipelines(self) -> list[Any]:
        """Return Numba's passes, with our own last step."""
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [
            (self.lowering if step is NativeLowering else step, about) for step, about in manager.passes
        ]
        manager._finalized = False
        manager.finalize()
        return [manager]


class PartCompiler(KernelCompiler):
    """Compiler of a function that only kernels call."""

    lowering = _PartLowering
