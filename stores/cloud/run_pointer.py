"""The pointer of a run at an address: the one object that is replaced, and names all others.

It is put only if the object that this writer saw last is still there (If-Match with its tag, or
If-None-Match for the first), which the service decides: of two writers one loses. A lost answer is
recognised by reading the pointer back, since every pointer has the id of its writer and a number.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from streammc.errors import BusyError, StoreError, UnavailableError
from streammc.stores.cloud.address import CloudFolder
from streammc.stores.cloud.connection import connect
from streammc.stores.cloud.requests import attempt
from streammc.trace.sealed import DOCUMENT_LIMIT, seal, unseal

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
        found = {"e_tag": self.tag, "version": self.version}
        return {name: value for name, value in found.items() if value is not None}

    def is_that_of(self, other: Version) -> bool:
        """Return whether two answers speak of one content; some have only one of both parts."""
        if self.tag is not None and other.tag is not None:
            return self.tag == other.tag
        return self.version is not None and self.version == other.version


def decode(data: bytes, folder: CloudFolder) -> Pointer:
    """Return the pointer in a document.

    Raises
    ------
    StoreError
        If it is damaged, of another program or of another format.
    """
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
    """Return the pointer of the run in a folder and its version; ``None`` if there is none.

    Raises
    ------
    MissingError
        If there is no bucket.
    StoreError
        If it is damaged.
    AccessError, UnavailableError
        If it is forbidden, or the budget of seconds is used up.
    """
    found = _read(folder)
    return None if found is None else (decode(found[0], folder), found[1])


def put_pointer(folder: CloudFolder, pointer: Pointer, before: Version | None) -> Version:
    """Put a pointer in place of the one of version ``before``; return its own version.

    Raises
    ------
    BusyError
        If another writer has put one since.
    AccessError, UnavailableError
        If it is forbidden, or the budget of seconds is used up; it may have been put.
    """
    import obstore

    data = pointer.encode()
    mode: Any = "create" if before is None else before.condition()

    def put() -> Version:
        try:
            done = obstore.put(
                connect(folder.scheme, folder.bucket), folder.key(POINTER), data, mode=mode
            )
            return Version(done.get("e_tag"), done.get("version"))
        except (
            obstore.exceptions.AlreadyExistsError,
            obstore.exceptions.PreconditionError,
        ):
            # The answer to an earlier try may have been lost: then the pointer is ours.
            found = _read(folder)
        if found is not None and found[0] == data:
            return found[1]
        if found is None or before is None:
            unchanged = found is None and before is None
        else:
            unchanged = found[1].is_that_of(before)
        if unchanged:
            raise ConnectionError("refused while another request was under way")
        raise BusyError(
            f"expected no other writer of the run at {str(folder)!r}, found another commit: stop "
            "the other process, then run the same command again to go on"
        )

    return attempt(f"{POINTER!r} in {str(folder)!r}", put)


def require_conditional_puts(folder: CloudFolder, probe: str) -> None:
    """Put an object twice under conditions that the second put cannot meet.

    Parameters
    ----------
    folder
        The address.
    probe
        Key of an object that does not exist; it may exist afterwards.

    Raises
    ------
    UnavailableError
        If the service puts it all the same, or the budget of seconds is used up.
    AccessError
        If it is forbidden.
    """
    import obstore

    what = f"{probe!r} in {str(folder)!r}"
    store, key = connect(folder.scheme, folder.bucket), folder.key(probe)
    conditions: tuple[Any, ...] = ("create", {"e_tag": _NO_TAG, "version": "1"})
    attempt(what, lambda: obstore.put(store, key, b"probe"))
    for mode in conditions:

        def put(mode: Any = mode) -> bool:
            try:
                obstore.put(store, key, b"probe again", mode=mode)
            except (
                obstore.exceptions.AlreadyExistsError,
                obstore.exceptions.PreconditionError,
            ):
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
            found = obstore.get(connect(folder.scheme, folder.bucket), folder.key(POINTER))
            size = int(found.meta["size"])
            if size > DOCUMENT_LIMIT:
                raise StoreError(
                    f"expected at most {DOCUMENT_LIMIT} bytes in {POINTER!r} in {str(folder)!r}, "
                    f"found {size}: choose another address"
                )
            content = bytes(found.bytes())
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
                raise
            return None
        if len(content) != size:
            raise ConnectionError("a truncated body")
        return content, Version(found.meta.get("e_tag"), found.meta.get("version"))

    return attempt(f"{POINTER!r} in {str(folder)!r}", get)
