"""Cache of machine code, loaded without what only a compilation needs.

numba prepares itself for a compilation before it loads a function from its cache (0.3 CPU s, once:
the implementations of everything that it can compile), and parses the intermediate code beside the
machine code for callers that could link it (0.1 CPU s for the functions of a run of ``hmc-ecs``).
Callers link the inner copy instead (``inner_dispatcher``).
"""

from __future__ import annotations

from typing import Any

import numba.experimental.function_type  # noqa: F401  types of function pointers
from numba.core.caching import CompileResultCacheImpl
from numba.core.codegen import JITCodeLibrary, ll
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys

from streammc.numerics.sealed_cache import SealedCache


class LoadedLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Machine code from the disk; intermediate code is parsed if a caller links it."""

    bitcode: bytes
    _shared_module: Any

    @classmethod
    def read(cls, codegen: Any, data: tuple[str, str, tuple[bytes, bytes]]) -> LoadedLibrary:
        """Return the library that ``serialize_using_object_code`` has written."""
        name, kind, (machine_code, bitcode) = data
        assert kind == "object", kind
        library = cls(codegen, name)
        library.bitcode = bitcode
        library.enable_object_caching()
        library._set_compiled_object(machine_code)
        library._finalize_final_module()
        return library

    def _get_module_for_linking(self) -> Any:
        module: Any = self._shared_module
        if module is None:
            module = self._shared_module = ll.parse_bitcode(self.bitcode)
        return module


def _defined(module: Any) -> set[str]:
    """Return the names of the functions and variables that a module defines."""
    both = (*module.functions, *module.global_variables)
    return {value.name for value in both if not value.is_declaration}


class MachineCodeImpl(CompileResultCacheImpl):  # type: ignore[misc]
    """Compile results on disk, with the names that their machine code defines."""

    def reduce(self, cres: Any) -> Any:
        """Return what is written: numba's record without the annotated source, and the names."""
        cres = cres._replace(type_annotation=None)
        return cres._reduce(), _defined(cres.library._get_module_for_linking())

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """Return the compile result that was written."""
        record, names = payload
        data, fndesc, environment, signature, objectmode, lifted, _, reload_init, others = record
        if objectmode or lifted or reload_init:
            target_context.refresh()
            return CompileResult._rebuild(target_context, *record)
        codegen = target_context.codegen()
        library = LoadedLibrary.read(codegen, data)
        codegen._engine._defined_symbols |= names
        for each in others:
            codegen.set_env(each.env_name, each)
        return CompileResult(
            target_context=target_context,
            typing_context=target_context.typing_context,
            library=library,
            environment=environment,
            entry_point=target_context.get_executable(library, fndesc, environment),
            fndesc=fndesc,
            type_annotation=None,
            signature=signature,
            objectmode=objectmode,
            lifted=lifted,
            typing_error=None,
            call_helper=None,
            metadata=None,
            reload_init=reload_init,
            referenced_envs=others,
        )


class MachineCodeCache(SealedCache):
    """Index of the machine code of a function on disk."""

    _impl_class = MachineCodeImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compile result of a signature, ``None`` if it is not on disk."""
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)
