"""Cache of compiled functions whose files are checked before they are loaded."""

from __future__ import annotations

import hashlib
import pickle
from contextlib import suppress
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile


class SealedFiles(IndexDataCacheFile):  # type: ignore[misc]
    """Files of the cache, each behind the digest of its content.

    A file that was cut or damaged is compiled again. numba would end with the error of its pickle,
    or run the damaged machine code.
    """

    def _load_index(self) -> Any:
        try:
            version, stamp, overloads = pickle.loads(self._read(self._index_path))
        except (OSError, ValueError):
            return {}
        return overloads if (version, stamp) == (self._version, self._source_stamp) else {}

    def _save_index(self, overloads: Any) -> None:
        self._write(self._index_path, (self._version, self._source_stamp, overloads))

    def _load_data(self, name: str) -> Any:
        return pickle.loads(self._read(self._data_path(name)))

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), data)

    def _write(self, path: str, content: Any) -> None:
        data = self._dump(content)
        with self._open_for_write(path) as file:
            file.write(hashlib.sha256(data).digest() + data)

    def _read(self, path: str) -> memoryview:
        """Return the content of a file; OSError if it is not what was written."""
        with open(path, "rb") as file:
            stored = memoryview(file.read())
        size = hashlib.sha256().digest_size
        if hashlib.sha256(stored[size:]).digest() != stored[:size]:
            raise OSError(f"damaged: {path}")
        return stored[size:]


class SealedCache(FunctionCache):  # type: ignore[misc]
    """Index of the compiled code of a function on disk."""

    def __init__(self, py_func: Any) -> None:
        super().__init__(py_func)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = SealedFiles(self._cache_path, self._impl.filename_base, stamp)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the compile result of a signature; a folder that cannot be written keeps none."""
        with suppress(OSError):
            super().save_overload(sig, data)
