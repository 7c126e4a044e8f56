"""A run at an address: fetched into a local folder, its commits copied back in order.

A commit changes some forty small files. They are packed into one tar archive, which takes one
request in place of forty, and which any tar can unpack. A commit is durable when the pointer that
names its objects, with their SHA-256, is put. Objects get names of their own and are never
replaced, so that nothing of a commit is seen before its pointer, and a killed or defeated writer
leaves objects that no pointer names; the next writer deletes them.

The pointer is the one object that is replaced. It is put only if the object that this writer saw
last is still there (If-Match with its tag, or If-None-Match for the first), which the service
decides: of two writers one loses. A lost answer is recognised by reading the pointer back, since
every pointer has the id of its writer and a number.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np

from streammc.errors import (
    BusyError,
    ConfigError,
    OutputError,
    StoreError,
    StreammcError,
    UnavailableError,
)
from streammc.stores.cloud import requests
from streammc.stores.cloud.address import CloudFolder, store_root
from streammc.stores.cloud.requests import attempt, store_of
from streammc.trace.disk import reporting
from streammc.trace.places import Changes, Place, Stamps, stamps
from streammc.trace.zarr_files import DOCUMENT_LIMIT, seal, unseal
from streammc.unfinished import temporary_folder

POINTER: Final = "run.json"
"""Key of the pointer in the folder of a run."""
OBJECTS: Final = "objects"
"""Folder of the objects that pointers name."""
_KIND, _FORMAT = "run at an address", 1
_NO_TAG: Final = '"00000000000000000000000000000000"'


class Packed(NamedTuple):
    """An object of a run, which is a tar archive of files."""

    key: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Pointer:
    """What the run at an address consists of, as of one commit."""

    writer: str
    """Id of the process that put it."""
    number: int
    """Number of pointers that this process had put before."""
    generation: int
    """Committed intervals of the run."""
    state: tuple[Packed, ...]
    """Root document and checkpoints of this commit alone."""
    others: tuple[Packed, ...]
    """All other files; of a name that comes twice, the later one counts."""

    def keys(self) -> set[str]:
        """Return the keys of all objects."""
        return {each.key for each in (*self.state, *self.others)}

    def encode(self) -> bytes:
        """Return the document, with its checksum."""
        return seal({}, {"kind": _KIND, "format": _FORMAT, **asdict(self)})


class Version(NamedTuple):
    """What the service calls the content of an object."""

    tag: str | None
    version: str | None

    def condition(self) -> dict[str, str]:
        """Return the condition of a put that replaces this content alone."""
        parts = {"e_tag": self.tag, "version": self.version}
        return {name: value for name, value in parts.items() if value is not None}

    def is_that_of(self, other: Version) -> bool:
        """Return whether two answers speak of one content; some have only one of both parts."""
        if self.tag is not None and other.tag is not None:
            return self.tag == other.tag
        return self.version is not None and self.version == other.version


def decode(data: bytes, folder: CloudFolder) -> Pointer:
    """Return the pointer in a document."""
    where = f"{POINTER!r} in {str(folder)!r}"
    _, own = unseal(data, Path(str(folder / POINTER)))
    if own.get("kind") != _KIND or own.get("format") != _FORMAT:
        raise StoreError(
            f"expected a run of format {_FORMAT} in {where}, found kind {own.get('kind')!r}, "
            f"format {own.get('format')!r}: choose another address, or update streammc"
        )
    try:
        state, others = (
            tuple(Packed(str(key), int(size), str(digest)) for key, size, digest in own[name])
            for name in ("state", "others")
        )
        numbers = int(own["number"]), int(own["generation"])
        return Pointer(str(own["writer"]), *numbers, state, others)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"expected a pointer written by streammc in {where}, found {error!r:.100}: restore it "
            "from a copy"
        ) from None


def read_pointer(folder: CloudFolder) -> tuple[Pointer, Version] | None:
    """Return the pointer of the run in a folder and its version; ``None`` if there is none."""
    answer = _read(folder)
    return None if answer is None else (decode(answer[0], folder), answer[1])


def put_pointer(folder: CloudFolder, pointer: Pointer, before: Version | None) -> Version:
    """Put a pointer in place of the one of version ``before``; return its own version.

    After an error of the connection it may have been put.
    """
    import obstore

    data = pointer.encode()
    mode: Any = "create" if before is None else before.condition()

    def put() -> Version:
        try:
            done = obstore.put(store_of(folder), folder.key(POINTER), data, mode=mode)
            return Version(done.get("e_tag"), done.get("version"))
        except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
            # The answer to an earlier try may have been lost: then the pointer is ours.
            present = _read(folder)
        if present is not None and present[0] == data:
            return present[1]
        if present is None or before is None:
            unchanged = present is None and before is None
        else:
            unchanged = present[1].is_that_of(before)
        if unchanged:
            raise ConnectionError("refused while another request was under way")
        raise BusyError(
            f"expected no other writer of the run at {str(folder)!r}, found another commit: stop "
            "the other process, then run the same command again to go on"
        )

    return attempt(f"{POINTER!r} in {str(folder)!r}", put)


def require_conditional_puts(folder: CloudFolder, probe: str) -> None:
    """Put an object twice under conditions that the second put cannot meet.

    ``probe`` is the key of an object that does not exist; it may exist afterwards.
    """
    import obstore

    what = f"{probe!r} in {str(folder)!r}"
    store, key = store_of(folder), folder.key(probe)
    conditions: tuple[Any, ...] = ("create", {"e_tag": _NO_TAG, "version": "1"})
    attempt(what, lambda: obstore.put(store, key, b"probe"))
    for mode in conditions:

        def put(mode: Any = mode) -> bool:
            try:
                obstore.put(store, key, b"probe again", mode=mode)
            except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
                return False
            return True

        if attempt(what, put):
            raise UnavailableError(
                f"expected a service with conditional puts (If-Match, If-None-Match) at "
                f"{str(folder)!r}, found one that ignores the condition, so that two writers would "
                "not be noticed: use another service, or a local path"
            )


def _read(folder: CloudFolder) -> tuple[bytes, Version] | None:
    import obstore

    def get() -> tuple[bytes, Version] | None:
        try:
            answer = obstore.get(store_of(folder), folder.key(POINTER))
            size = int(answer.meta["size"])
            if size > DOCUMENT_LIMIT:
                raise StoreError(
                    f"expected at most {DOCUMENT_LIMIT} bytes in {POINTER!r} in {str(folder)!r}, "
                    f"found {size}: choose another address"
                )
            content = bytes(answer.bytes())
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
                raise
            return None
        if len(content) != size:
            raise ConnectionError("a truncated body")
        return content, Version(answer.meta.get("e_tag"), answer.meta.get("version"))

    return attempt(f"{POINTER!r} in {str(folder)!r}", get)


_LARGEST: Final = 32 * 2**20
"""Bytes of files from which on an archive gets no more of them."""
_THREADS: Final = 8


def packed(files: Mapping[str, bytes]) -> Iterator[bytes]:
    """Yield archives that hold ``files``, by name, between them; nothing without files."""
    part: dict[str, bytes] = {}
    size = 0
    for name, content in files.items():
        part[name] = content
        size += len(content)
        if size >= _LARGEST:
            yield _archive(part)
            part, size = {}, 0
    if part:
        yield _archive(part)


def _archive(files: Mapping[str, bytes]) -> bytes:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return into.getvalue()


def digest(content: bytes | memoryview) -> str:
    """Return the SHA-256 of an archive, as the pointer has it."""
    return hashlib.sha256(content).hexdigest()


def fetch(folder: CloudFolder, objects: Sequence[Packed], into: Path) -> None:
    """Fetch archives, in this order, and write their files below the folder ``into``."""
    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(objects), _THREADS):
            part = objects[start : start + _THREADS]
            for content in pool.map(lambda each: _fetched(folder, each), part):
                _unpack(content, into)


def _fetched(folder: CloudFolder, expected: Packed) -> memoryview:
    """Return the content of an object that has the size and the digest of the pointer."""
    content = np.empty(expected.size, np.uint8)
    try:
        requests.read_into(folder, expected.key, content)
        fault = None if digest(content.data) == expected.sha256 else "another content"
    except StoreError:
        fault = "none or a shorter one"
    if fault is not None:
        raise StoreError(
            f"expected the object {expected.key!r} of the run at {str(folder)!r} as its pointer "
            f"names it, found {fault}: restore it from a copy, or sample again at another address"
        )
    return content.data


def _unpack(content: memoryview, into: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        for member in archive:
            name = PurePosixPath(member.name)
            if not member.isreg() or name.is_absolute() or ".." in name.parts or "\0" in str(name):
                raise StoreError(
                    f"expected names of plain files in the objects of a run, found {member.name!r}:"
                    " these objects are of another program; choose another address"
                )
            source = archive.extractfile(member)
            assert source is not None
            with reporting("write", into / name):
                (into / name).parent.mkdir(parents=True, exist_ok=True)
                (into / name).write_bytes(source.read())


MOST_BYTES: Final = 64 * 2**20
"""Bytes that wait to be copied from which on the next commit waits, too."""


class CopyThread:
    """Copies commits one after the other; those that wait are copied together, as one.

    After an error nothing more is copied.
    """

    def __init__(self, copy: Callable[[Changes], None]) -> None:
        self._copy = copy
        self._changed = threading.Condition()
        self._waiting: Changes | None = None
        self._busy = self._over = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="streammc-commits", daemon=True)
        self._thread.start()

    def send(self, changed: Changes) -> None:
        """Have a commit copied; wait only while over ``MOST_BYTES`` of others are not."""
        with self._changed:
            while self._waiting is not None and self._waiting.nbytes > MOST_BYTES:
                self._raise()
                self._changed.wait()
            self._raise()
            if (first := self._waiting) is not None:
                others = {**first.others, **changed.others}
                changed = Changes(changed.generation, changed.state, others)
            self._waiting = changed
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until every commit is copied; raise the error of one that could not be."""
        with self._changed:
            while self._failure is None and (self._busy or self._waiting is not None):
                self._changed.wait()
            self._raise()

    def end(self) -> None:
        """Wait as :meth:`flush` does; nothing can be sent afterwards."""
        try:
            self.flush()
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while True:
            with self._changed:
                while self._waiting is None and not self._over:
                    self._changed.wait()
                if self._waiting is None:
                    return
                work, self._waiting, self._busy = self._waiting, None, True
            try:
                self._copy(work)
            except BaseException as error:
                with self._changed:
                    self._failure = error
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                if self._failure is not None:
                    return


def run_at(address: str) -> Place | Path:
    """Return the run at an address, or the path that a ``file://`` address names."""
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
    """The run in a folder of an object store; see ``trace.places.Place``."""

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
            current = read_pointer(self._folder)
            while self._path is None or self._defeated or not self._is_current(current):
                pointer, version = current or (None, None)
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
                    if again == current:
                        raise
                    current = again
                    continue
                self._path, self._pointer, self._version = path, pointer, version
                self._kept = () if pointer is None else pointer.others
                self.known = {} if pointer is None else stamps(path)
                self._left, self._defeated = None, False
            return self._path

    def holds(self, folder: Path) -> bool:
        """Return whether a folder has the commit that the next one can follow."""
        return folder == self._path and not self._defeated

    def _is_current(self, current: tuple[Pointer, Version] | None) -> bool:
        """Return whether the folder holds the commit of a pointer."""
        return self._pointer == (None if current is None else current[0])

    def require_writable(self) -> None:
        """Raise a StreammcError if a run cannot be started or continued at the address."""
        if not self._folder.listable:
            raise ConfigError(
                f"expected an address s3://, gs:// or az:// to write to, found {self.address!r}: "
                "give one of those, a web server can only be read from"
            )
        keys = set(requests.list_objects(self._folder))
        others = {key for key in keys if not key.startswith(f"{OBJECTS}/")} - {POINTER}
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
            if error.exit_code == BusyError.exit_code:  # refused, so certainly not put
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
