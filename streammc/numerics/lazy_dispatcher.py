"""Compiled functions whose compilation is deferred to the first use."""

from __future__ import annotations

from typing import Any

from numba.core import config as numba_config
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher

from streammc.numerics.compile_cache import cache_dir
from streammc.numerics.inner_dispatcher import InnerDispatcher
from streammc.numerics.machine_code import MachineCodeCache


class ReadyDispatcher(CPUDispatcher):  # type: ignore[misc]
    """Function for calls from Python and function pointers; compiled code calls another copy.

    The copy has no wrappers and no machine code of its own (``inner_dispatcher``).
    """

    _signatures: tuple[Any, ...] = ()
    _folder: str | None = None
    """Folder in the cache; ``None``: not cached."""

    def enable_caching(self) -> None:
        """Keep the machine code on disk."""
        self._cache = MachineCodeCache(self.py_func)

    def inner(self) -> InnerDispatcher:
        """Return the copy that compiled code calls."""
        with global_compiler_lock:
            if "_inner" not in self.__dict__:
                self._inner = InnerDispatcher(self.py_func, {}, self.targetoptions)
                try:
                    _compile(self._inner, self._signatures, self._folder and f"{self._folder}-i")
                except BaseException:
                    del self._inner
                    raise
            copy: InnerDispatcher = self._inner
            return copy

    @property
    def is_compiling(self) -> bool:
        """Whether a call of the function is one by itself: it is recursive."""
        copy = self.__dict__.get("_inner")
        return bool(self._compiling_counter or (copy is not None and copy.is_compiling))

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return the signatures for a call by a compiled function."""
        return self.inner().get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        """Return the key of the code of a signature, for a call by a compiled function."""
        return self.inner().get_overload(sig)


def _compile(dispatcher: CPUDispatcher, signatures: tuple[Any, ...], folder: str | None) -> None:
    """Compile the signatures, or load them from a folder of the cache; allow no others."""
    if folder is not None:
        before, numba_config.CACHE_DIR = numba_config.CACHE_DIR, f"{cache_dir()}/{folder}"
        try:
            dispatcher.enable_caching()
        finally:
            numba_config.CACHE_DIR = before
    for signature in signatures:
        CPUDispatcher.compile(dispatcher, signature)
    if signatures:
        dispatcher.disable_compile()


class LazyDispatcher(ReadyDispatcher):
    """Function with fixed signatures, compiled or loaded at the first use.

    A use is a call or a function pointer; a call by a compiled function is a use of its copy
    alone. Then the object turns into a ``ReadyDispatcher``, which takes no other signature, so
    that later calls have no more overhead than calls of numba.
    """

    @classmethod
    def defer(cls, dispatcher: CPUDispatcher, signatures: tuple[Any, ...], digest: str) -> Any:
        """Defer the compilation of ``dispatcher`` to its first use; return it.

        Without signatures, the types of each call are compiled.
        """
        dispatcher._signatures, dispatcher._folder = signatures, digest
        dispatcher.__class__ = cls
        return dispatcher

    def ready(self) -> None:
        """Compile the signatures, or load them from the disk."""
        with global_compiler_lock:
            # A recursive call, or a thread that waited for the lock, finds nothing left to do.
            if self.__dict__.get("_begun"):
                return
            self._begun = True
            try:
                _compile(self, self._signatures, self._folder)
            except BaseException:
                self._begun = False
                raise
            self.__class__ = ReadyDispatcher

    @property
    def overloads(self) -> Any:
        """Compiled code by argument types; access to it counts as a use."""
        self.ready()
        return self.__dict__["overloads"]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled function."""
        self.ready()
        return CPUDispatcher.__call__(self, *args, **kwargs)

    def get_function_type(self) -> Any:
        """Return the type of a pointer to the function."""
        self.ready()
        return CPUDispatcher.get_function_type(self)

    def compile(self, sig: Any) -> Any:
        """Refuse a signature other than the fixed ones."""
        self.ready()
        return CPUDispatcher.compile(self, sig)

    def _reduce_states(self) -> Any:
        self.ready()
        return CPUDispatcher._reduce_states(self)
