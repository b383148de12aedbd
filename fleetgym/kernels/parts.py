"""Compile kernels that only other kernels call: a typed function in, intermediate code to be joined to its callers out.

Numba makes machine code of every function it compiles. For a part of a kernel nobody runs that code: callers take in
the intermediate code and compile it once more, with their own. Here it is left out, which is a third of the time that
compiling all kernels takes.
"""

from __future__ import annotations

from typing import Any

import numba.core.cpu
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class _PartLibrary(JITCodeLibrary):
    """Optimised intermediate code that other libraries link to; the machine never sees it."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


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


class PartCompiler(CompilerBase):
    """Numba's compiler, but for its last step; to be given to `numba.njit` as `pipeline_class`."""

    def define_pipelines(self) -> list[Any]:
        """Return Numba's passes, with our own last step."""
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [
            (_PartLowering if step is NativeLowering else step, about) for step, about in manager.passes
        ]
        manager._finalized = False
        manager.finalize()
        return [manager]
