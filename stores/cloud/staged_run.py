"""A run at an address: fetched into a local folder, its commits copied back in order.

A commit is durable when the pointer that names its objects is put (``run_pointer``). Objects get
names of their own and are never replaced, so that nothing of a commit is seen before its pointer,
and a killed or defeated writer leaves objects that no pointer names; the next writer deletes them.
"""

from __future__ import annotations

import threading
from pathlib import Path
from uuid import uuid4

from streammc.errors import ConfigError, OutputError, StoreError, StreammcError
from streammc.stores.cloud import requests
from streammc.stores.cloud.address import CloudFolder, store_root
from streammc.stores.cloud.copy_thread import CopyThread
from streammc.stores.cloud.run_packs import digest, fetch, packed
from streammc.stores.cloud.run_pointer import (
    OBJECTS,
    POINTER,
    Packed,
    Pointer,
    Version,
    put_pointer,
    read_pointer,
    require_conditional_puts,
)
from streammc.trace.places import Place
from streammc.trace.run_files import Changes, Stamps, stamps
from streammc.trace.temporary import temporary_folder


def run_at(address: str) -> Place | Path:
    """Return the run at an address, or the path that a ``file://`` address names.

    Raises
    ------
    ConfigError
        If the scheme is unknown, or the address may hold credentials.
    """
    root = store_root(address)
    return root if isinstance(root, Path) else StagedRun(root)


def _local_folder(address: str) -> Path:
    try:
        return temporary_folder("streammc-run-at-")
    except OSError as error:
        raise OutputError(
            f"expected a writable temporary folder for the run at {address!r}, found none "
            f"({error.strerror or error}): set TMPDIR to one"
        ) from None


class StagedRun:
    """The run in a folder of an object store; see ``trace.places.Place``.

    Parameters
    ----------
    folder
        Its address.
    """

    def __init__(self, folder: CloudFolder) -> None:
        self.address = str(folder)
        self.known: Stamps = {}
        self._folder = folder
        self._base = _local_folder(self.address)
        self._path: Path | None = None
        self._fetches = 0
        self._pointer: Pointer | None = None
        self._version: Version | None = None
        self._kept: tuple[Packed, ...] = ()
        """Objects that the next pointer names besides those of its commit."""
        self._writer = uuid4().hex[:12]
        self._number = 0
        self._made = 0
        self._left: set[str] | None = None
        """Objects that no pointer names, found before the first pointer of this process."""
        self._thread: CopyThread | None = None
        self._defeated = False
        self._lock = threading.RLock()

    @property
    def durable(self) -> int:
        """Generation of the last commit that the address is known to have."""
        return -1 if self._pointer is None else self._pointer.generation

    def refresh(self) -> Path:
        """Return the folder with the newest commit at the address; absent without a run.

        A folder is never changed by a fetch: readers of an earlier commit keep theirs.
        """
        with self._lock:
            if self._thread is not None and self._path is not None:
                return self._path  # this process is the writer
            found = read_pointer(self._folder)
            while self._path is None or self._defeated or not self._is_current(found):
                pointer, version = found or (None, None)
                path = self._base / str(self._fetches) / self._folder.name
                self._fetches += 1
                try:
                    if pointer is not None:
                        path.mkdir(parents=True)
                        fetch(self._folder, (*pointer.others, *pointer.state), path)
                    else:
                        path.parent.mkdir()
                except StoreError:
                    # A writer may have deleted the objects of a commit that it has replaced.
                    again = read_pointer(self._folder)
                    if again == found:
                        raise
                    found = again
                    continue
                self._path, self._pointer, self._version = path, pointer, version
                self._kept = () if pointer is None else pointer.others
                self.known = {} if pointer is None else stamps(path)
                self._left, self._defeated = None, False
            return self._path

    def holds(self, folder: Path) -> bool:
        """Return whether a folder has the commit that the next one can follow."""
        return folder == self._path and not self._defeated

    def _is_current(self, found: tuple[Pointer, Version] | None) -> bool:
        """Return whether the folder holds the commit of a pointer."""
        return self._pointer == (None if found is None else found[0])

    def require_writable(self) -> None:
        """Raise a StreammcError if a run cannot be started or continued at the address.

        Raises
        ------
        ConfigError
            If it is the address of a web server.
        OutputError
            If objects of something else are there.
        UnavailableError, AccessError
            If the object store cannot be reached, refuses a write, or puts what it should refuse.
        """
        if not self._folder.listable:
            raise ConfigError(
                f"expected an address s3://, gs:// or az:// to write to, found {self.address!r}: "
                "give one of those, a web server can only be read from"
            )
        found = set(requests.list_objects(self._folder))
        others = {key for key in found if not key.startswith(f"{OBJECTS}/")} - {POINTER}
        if self._pointer is None and others:
            raise OutputError(
                f"expected nothing, or a run of streammc, at {self.address!r}, found "
                f"{len(others)} other objects: choose another address"
            )
        probe = self._new_key()
        try:
            require_conditional_puts(self._folder, probe)
        finally:
            self._forget({probe})

    def begin(self) -> None:
        """Begin to copy commits in the background."""
        self._thread = CopyThread(self._copy)

    def send(self, changed: Changes) -> None:
        """Copy a commit to the address: in the background after :meth:`begin`, else at once."""
        if self._thread is None:
            self._copy(changed)
        else:
            self._thread.send(changed)

    def flush(self) -> None:
        """Wait until the address has every commit that was sent."""
        if self._thread is not None:
            self._thread.flush()

    def end(self) -> None:
        """Wait as :meth:`flush` does, and end the copying."""
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        thread.end()

    def clear(self) -> None:
        """Let the next commit start a run without the objects of the present one."""
        self.flush()
        self._kept, self.known = (), {}

    def _copy(self, changed: Changes) -> None:
        """Put the objects of a commit, then the pointer to them, then delete what it replaces."""
        if self._left is None:
            # Listed before the pointer is put: a writer that starts from it makes other objects.
            named = set() if self._pointer is None else self._pointer.keys()
            objects = {key for key in requests.list_objects(self._folder) if key != POINTER}
            self._left = {key for key in objects if key.startswith(f"{OBJECTS}/")} - named
        made: list[Packed] = []
        try:
            others = (*self._kept, *self._put(changed.others, made))
            state = tuple(self._put(changed.state, made))
            pointer = Pointer(self._writer, self._number, changed.generation, state, others)
            self._number += 1
            version = put_pointer(self._folder, pointer, self._version)
        except StreammcError as error:
            self._defeated = True
            if error.exit_code == 75:  # certainly not put
                self._forget({each.key for each in made})
            raise
        old = self._left | (set() if self._pointer is None else self._pointer.keys())
        self._pointer, self._version, self._kept, self._left = pointer, version, others, set()
        self._forget(old - pointer.keys())

    def _put(self, files: dict[str, bytes], made: list[Packed]) -> list[Packed]:
        """Put files as new objects, and return these; ``made`` gets them too."""
        before = len(made)
        for content in packed(files):
            each = Packed(self._new_key(), len(content), digest(content))
            made.append(each)
            requests.write(self._folder, each.key, content)
        return made[before:]

    def _new_key(self) -> str:
        self._made += 1
        return f"{OBJECTS}/{self._writer}-{self._made:06d}.tar"

    def _forget(self, keys: set[str]) -> None:
        """Delete objects that no pointer names; the next writer deletes those that remain."""
        try:
            requests.delete(self._folder, sorted(keys))
        except StreammcError:
            return
