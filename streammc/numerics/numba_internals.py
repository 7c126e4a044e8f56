"""The only use of private classes of numba: two dispatchers that compile and load in less time.

:mod:`streammc.numerics.dispatchers` does without this module with a release of numba that is not
one of :data:`HOLDS`, or lacks one of the names below: then ``numba.njit`` is used, and compiling
takes longer.

:class:`InnerDispatcher` compiles a function for compiled callers: to intermediate code, without
machine code. numba turns a compiled function into machine code even where only compiled code calls
it, and the caller links the intermediate code, so that its machine code has a copy of its own.

:class:`OuterDispatcher` loads machine code without what only a compilation needs: numba prepares
itself for a compilation before it loads a function, and parses the intermediate code beside it.

:class:`SealedFiles` are behind digests of their contents: a file that was cut or damaged is
compiled again. numba would end with the error of its pickle, or run the damaged machine code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    UserProvidedCacheLocator,
)
from numba.core.codegen import JITCodeLibrary, ll
from numba.core.compiler import Compiler, CompileResult
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys

_USED = {
    IndexDataCacheFile: "_load_index _load_data _data_path _open_for_write",
    FunctionCache: "_load_overload _guard_against_spurious_io_errors save_overload",
    CompileResultCacheImpl: "_locator_classes reduce rebuild",
    UserProvidedCacheLocator: "get_suitable_cache_subpath get_source_stamp",
    JITCodeLibrary: "_optimize_final_module _finalize_final_module _finalize_dynamic_globals "
    "_verify_declare_only_symbols serialize_using_bitcode",
    Compiler: "compile_extra define_pipelines",
    CompileResult: "_reduce _rebuild _find_referenced_environments",
    CPUDispatcher: "add_overload enable_caching get_call_template get_compile_result",
    rtsys: "initialize",
}
"""What is called or replaced, by class."""

HOLDS = ("0.68",)
"""Releases of numba with which the tests of this module have passed."""


def fits() -> bool:
    """Return whether this numba is one of :data:`HOLDS`, and has every name of :data:`_USED`."""
    return numba.__version__.rpartition(".")[0] in HOLDS and all(
        hasattr(owner, name) for owner, names in _USED.items() for name in names.split()
    )


_NJIT: dict[str, Any] = {"nopython": True, "boundscheck": None}
"""Options that ``numba.njit`` sets by itself."""


class SealedFiles(IndexDataCacheFile):  # type: ignore[misc]
    """Files of the cache, each followed by the digest of its content; a pickle ignores it."""

    def _load_index(self) -> Any:
        return super()._load_index() if _intact(self._index_path) else {}

    def _load_data(self, name: str) -> Any:
        if not _intact(self._data_path(name)):
            raise OSError(f"damaged: {name}")
        return super()._load_data(name)

    @contextmanager
    def _open_for_write(self, path: str) -> Iterator[Any]:
        with super()._open_for_write(path) as file:
            yield file
            file.flush()
            file.write(hashlib.sha256(Path(file.name).read_bytes()).digest())


def _intact(path: str) -> bool:
    """Return whether a file ends with the digest of what is before it."""
    try:
        content = Path(path).read_bytes()
    except OSError:
        return False
    size = hashlib.sha256().digest_size
    return hashlib.sha256(content[:-size]).digest() == content[-size:]


class FolderLocator(UserProvidedCacheLocator):  # type: ignore[misc]
    """Place of the files of a function: a folder that is named after the contents of its sources.

    Checkouts with the same sources share it: neither their paths nor times of files count.
    """

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """Return no folder for the path of the source."""
        return ""

    def get_source_stamp(self) -> str:
        """Return no stamp of the source."""
        return ""


class SealedCache(FunctionCache):  # type: ignore[misc]
    """Index of the compiled code of a function on disk."""

    def __init__(self, py_func: Any) -> None:
        super().__init__(py_func)
        self._cache_file = SealedFiles(self._cache_path, self._impl.filename_base, "")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compile result of a signature without preparing for a compilation."""
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the compile result of a signature; a folder that cannot be written keeps none."""
        with suppress(OSError):
            super().save_overload(sig, data)


class MachineCode(CompileResultCacheImpl):  # type: ignore[misc]
    """Compile results on disk as machine code."""

    _locator_classes = (FolderLocator,)

    def reduce(self, cres: Any) -> Any:
        """Return what is written: numba's record, with names in place of the intermediate code."""
        library, *rest = cres._replace(type_annotation=None)._reduce()
        name, kind, (machine_code, bitcode) = library
        return (name, kind, (machine_code, _names_alone(ll.parse_bitcode(bitcode)))), *rest

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """Return the compile result that was written."""
        if payload[-2]:  # functions to call before, which need what a compilation needs
            target_context.refresh()
        return super().rebuild(target_context, payload)


def _names_alone(module: Any) -> bytes:
    """Return the intermediate code of a module that defines the same names, all empty."""
    functions = [each.name for each in module.functions if not each.is_declaration]
    variables = [each.name for each in module.global_variables if not each.is_declaration]
    lines = [f'define void @"{name}"() {{ ret void }}' for name in functions]
    lines += [f'@"{name}" = global i8 0' for name in variables]
    bitcode: bytes = ll.parse_assembly("\n".join(lines)).as_bitcode()
    return bitcode


class OuterCache(SealedCache):
    """Machine code of a function on disk."""

    _impl_class = MachineCode


class Addresses:
    """Addresses of the functions of a library, looked up once."""

    def __init__(self, library: Any) -> None:
        self.get_pointer_to_function = cache(library.get_pointer_to_function)


class OuterDispatcher(CPUDispatcher):  # type: ignore[misc]
    """Function for calls from Python and function pointers."""

    def __init__(self, py_func: Any, options: dict[str, Any]) -> None:
        CPUDispatcher.__init__(self, py_func, {}, {**_NJIT, **options})
        self._found: dict[int, tuple[Any, Any]] = {}

    def enable_caching(self) -> None:
        """Keep the machine code on disk."""
        self._cache = OuterCache(self.py_func)

    def get_compile_result(self, sig: Any) -> Any:
        """Return the compile result for a function pointer.

        numba asks twice whenever the function is an argument, with the same object as signature,
        and compares types for a tenth of a millisecond each time.
        """
        known, result = self._found.get(id(sig), (None, None))
        if known is not sig:
            result = super().get_compile_result(sig)
            result = result._replace(library=Addresses(result.library))
            self._found[id(sig)] = sig, result
        return result


class InnerLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Intermediate code of a function, to be linked into its callers."""

    def _finalize_final_module(self) -> None:
        """Finish the module without the engine, which would emit machine code."""
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


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


class IntermediateCode(CompileResultCacheImpl):  # type: ignore[misc]
    """Compile results on disk as intermediate code."""

    _locator_classes = (FolderLocator,)

    def reduce(self, cres: Any) -> Any:
        """Return what is written."""
        cres.fndesc.typemap = cres.fndesc.calltypes = None
        return (
            cres.library.name,
            cres.library.serialize_using_bitcode()[-1],
            {
                "fndesc": cres.fndesc,
                "environment": cres.environment,
                "signature": cres.signature,
                "reload_init": cres.reload_init,
                "referenced_envs": tuple(cres._find_referenced_environments()),
            },
        )

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """Return the compile result that was written."""
        name, bitcode, fields = payload
        for function in fields["reload_init"]:
            function()
        library = InnerLibrary(target_context.codegen(), name)
        library._final_module = ll.parse_bitcode(bitcode)
        library._finalize_final_module()
        others = dict.fromkeys(CompileResult._fields) | {"objectmode": False, "lifted": ()}
        result = CompileResult(**others | fields)
        return _with_key(
            result._replace(
                target_context=target_context,
                typing_context=target_context.typing_context,
                library=library,
            )
        )


class InnerCache(SealedCache):
    """Intermediate code of a function on disk."""

    _impl_class = IntermediateCode


class InnerDispatcher(CPUDispatcher):  # type: ignore[misc]
    """Function for compiled callers; its ``signatures``, if any, are compiled at the first call.

    A ``composition`` is optimised within its callers only.
    """

    def __init__(
        self,
        py_func: Any,
        options: dict[str, Any],
        signatures: tuple[Any, ...] = (),
        composition: bool = False,
    ) -> None:
        compiler = CompositionCompiler if composition else InnerCompiler
        CPUDispatcher.__init__(self, py_func, {}, {**_NJIT, **options}, compiler)
        self._signatures = signatures
        self._pointed: Any = None

    def enable_caching(self) -> None:
        """Keep the compile results on disk."""
        self._cache = InnerCache(self.py_func)

    def add_overload(self, cres: Any) -> None:
        """Add a compile result: to the table for callers, not to that for calls from Python."""
        self.overloads[tuple(cres.signature.args)] = cres

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return the signatures for a call by a compiled function."""
        if self._can_compile and self._signatures:
            for signature in self._signatures:
                self.compile(signature)
            self.disable_compile()
        return super().get_call_template(args, kws)

    def get_function_type(self) -> Any:
        """Return the type of a pointer to the function."""
        return types.FunctionType(self._signatures[0]) if len(self._signatures) == 1 else None

    def get_compile_result(self, sig: Any) -> Any:
        """Return code with a wrapper for function pointers, for a compiled function that needs one.

        It is that of another copy, which is not kept on disk: machine code from there has no
        intermediate code to be linked. No function of this package needs it.
        """
        if self._pointed is None:
            self._pointed = OuterDispatcher(self.py_func, self.targetoptions)
        return CPUDispatcher.get_compile_result(self._pointed, sig)
