"""Compiled functions whose compilation is deferred to the first use."""

from __future__ import annotations

from typing import Any

from numba.core import config as numba_config
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher

from streammc.numerics.compile_cache import cache_dir


class LazyDispatcher(CPUDispatcher):  # type: ignore[misc]
    """Function with fixed signatures, compiled or loaded at the first use.

    A use is a call, a call by a compiled function, or a function pointer. Then the object turns
    into a plain ``CPUDispatcher``, which takes no other signature, so that later calls have no
    more overhead than calls of numba.
    """

    @classmethod
    def defer(cls, dispatcher: CPUDispatcher, signatures: tuple[Any, ...], digest: str) -> Any:
        """Defer the compilation of ``dispatcher`` to its first use; return it.

        Without signatures, the types of each call are compiled.
        """
        dispatcher._deferred = (signatures, digest)
        dispatcher.__class__ = cls
        return dispatcher

    def ready(self) -> None:
        """Compile the signatures, or load them from the disk."""
        with global_compiler_lock:
            # A recursive call, or a thread that waited for the lock, finds nothing left to do.
            signatures, digest = self.__dict__.pop("_deferred", (None, None))
            if digest is None:
                return
            try:
                folder, numba_config.CACHE_DIR = numba_config.CACHE_DIR, f"{cache_dir()}/{digest}"
                try:
                    self.enable_caching()
                finally:
                    numba_config.CACHE_DIR = folder
                for signature in signatures:
                    CPUDispatcher.compile(self, signature)
                if signatures:
                    self.disable_compile()
            except BaseException:
                self._deferred = (signatures, digest)
                raise
            self.__class__ = CPUDispatcher

    @property
    def overloads(self) -> Any:
        """Compiled code by argument types; access to it counts as a use."""
        self.ready()
        return self.__dict__["overloads"]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled function."""
        self.ready()
        return CPUDispatcher.__call__(self, *args, **kwargs)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return the signatures for a call by a compiled function."""
        self.ready()
        return CPUDispatcher.get_call_template(self, args, kws)

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
