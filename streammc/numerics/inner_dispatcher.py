"""Functions as compiled code calls them: intermediate code, without machine code.

numba optimises a compiled function and turns it into machine code, with a wrapper for calls from
Python and one for function pointers, even where only compiled code calls it. A compiled caller
takes none of this: it links the intermediate code, and the machine code of the caller contains its
own copy. Of ``transition.run`` of ``hmc-ecs``, with 72 functions below it, that was two thirds of
67 CPU seconds.
"""

from __future__ import annotations

from typing import Any

from numba.core.caching import CompileResultCacheImpl
from numba.core.codegen import JITCodeLibrary, ll
from numba.core.compiler import Compiler, CompileResult
from numba.core.registry import CPUDispatcher

from streammc.numerics.sealed_cache import SealedCache


class InnerLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Intermediate code of a function, to be linked into its callers."""

    def _finalize_final_module(self) -> None:
        """Finish the module without the engine, which would emit machine code."""
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    @classmethod
    def read(cls, codegen: Any, name: str, bitcode: bytes) -> InnerLibrary:
        """Return the library that ``serialize_using_bitcode`` has written."""
        library = cls(codegen, name)
        library._final_module = ll.parse_bitcode(bitcode)
        library._finalize_final_module()
        return library


class CompositionLibrary(InnerLibrary):
    """Intermediate code that is optimised within its callers, and not alone."""

    def _optimize_final_module(self) -> None:
        """Leave the module as it is."""


class InnerCompiler(Compiler):  # type: ignore[misc]
    """Compiler of a function that only compiled code calls."""

    library_class: type[InnerLibrary] = InnerLibrary

    def define_pipelines(self) -> Any:
        """Return numba's passes, set to make no wrapper and no machine code."""
        state = self.state
        state.flags.no_cpython_wrapper = state.flags.no_cfunc_wrapper = True
        state.flags.no_compile = True
        state.library = self.library_class(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().define_pipelines()

    def compile_extra(self, func: Any) -> Any:
        """Compile; make the result known to the lowering of callers."""
        result = _with_key(super().compile_extra(func))
        result.target_context.insert_user_function(
            result.entry_point, result.fndesc, [result.library]
        )
        return result


class CompositionCompiler(InnerCompiler):
    """Compiler of a function that is optimised within its callers only."""

    library_class = CompositionLibrary


def _with_key(result: Any) -> Any:
    """Return a compile result with an entry point of its own, as which callers look it up."""
    return result._replace(entry_point=object())


class InnerCacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    """Compile results on disk as intermediate code."""

    def reduce(self, cres: Any) -> Any:
        """Return what is written."""
        library = cres.library
        cres.fndesc.typemap = cres.fndesc.calltypes = None
        environments = tuple(cres._find_referenced_environments())
        return (
            *library.serialize_using_bitcode()[::2],
            cres.fndesc,
            cres.environment,
            cres.signature,
            cres.reload_init,
            environments,
        )

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """Return the compile result that was written."""
        name, bitcode, fndesc, environment, signature, reload_init, environments = payload
        for function in reload_init:
            function()
        return _with_key(
            CompileResult(
                target_context=target_context,
                typing_context=target_context.typing_context,
                library=InnerLibrary.read(target_context.codegen(), name, bitcode),
                environment=environment,
                entry_point=None,
                fndesc=fndesc,
                type_annotation=None,
                signature=signature,
                objectmode=False,
                lifted=(),
                typing_error=None,
                call_helper=None,
                metadata=None,
                reload_init=reload_init,
                referenced_envs=environments,
            )
        )


class InnerCache(SealedCache):
    """Index of the compile results of a function on disk."""

    _impl_class = InnerCacheImpl


class InnerDispatcher(CPUDispatcher):  # type: ignore[misc]
    """Function compiled for compiled callers; a call from Python compiles it once more.

    A ``composition`` is optimised within its callers only.
    """

    def __init__(
        self,
        py_func: Any,
        locals: Any = None,
        targetoptions: Any = None,
        composition: bool = False,
    ) -> None:
        compiler = CompositionCompiler if composition else InnerCompiler
        CPUDispatcher.__init__(self, py_func, locals, targetoptions, compiler)

    def enable_caching(self) -> None:
        """Keep the compile results on disk."""
        self._cache = InnerCache(self.py_func)

    def add_overload(self, cres: Any) -> None:
        """Add a compile result: to the table for callers, not to that for calls from Python."""
        self.overloads[tuple(cres.signature.args)] = cres

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function from Python."""
        outer = self.__dict__.get("_outer")
        if outer is None:
            outer = self._outer = CPUDispatcher(self.py_func, {}, self.targetoptions)
        return outer(*args, **kwargs)
