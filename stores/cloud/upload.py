"""A new store at an address, which readers see once its manifest is there.

An object store has no rename. The objects are written to their places under a claim, an object
that is made only if there is none (a conditional put), so that of two writers of one address one
is refused before it writes. The manifest is put last, in the same way: without it the objects
are no store.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from streammc.errors import BusyError, ConfigError, IdentityError, StreammcError
from streammc.stores.cloud import requests
from streammc.stores.cloud.address import CloudFolder
from streammc.stores.format.layout import MANIFEST

CLAIM: Final = ".streammc-writer.json"


def refuse_occupied(folder: CloudFolder, *, overwrite: bool = False) -> None:
    """Refuse a folder with objects in it, or one that cannot be written to."""
    if not folder.listable:
        raise ConfigError(
            f"expected an address s3://, gs:// or az:// to write to, found {str(folder)!r}: give "
            "one of those, a web server can only be read from"
        )
    if overwrite:
        raise ConfigError(
            f"expected no --overwrite for {str(folder)!r}: a store at an address cannot be "
            "replaced at one instant; choose another address"
        )
    objects = requests.list_objects(folder)
    if CLAIM in objects and MANIFEST not in objects:
        raise _claimed(folder)
    _refuse_objects(folder, objects)


def _refuse_objects(folder: CloudFolder, objects: Collection[str]) -> None:
    if objects:
        raise IdentityError(
            f"expected nothing at {str(folder)!r}, found {len(objects)} objects: choose another "
            "address, or delete them"
        )


class Upload:
    """The objects of a new store at ``folder``, claimed by this process.

    A ``format.partial.PartialStore``: arguments that only local files need are not used.
    """

    def __init__(self, folder: CloudFolder) -> None:
        self._folder = folder
        self._keys: list[str] = []
        self._last: str | None = None
        self._open = True
        claim = {"id": uuid4().hex, "since": int(time.time()), "pid": os.getpid()}
        claim["host"] = socket.gethostname()
        try:
            requests.write(folder, CLAIM, json.dumps(claim).encode(), new=True)
        except IdentityError:
            raise _claimed(folder) from None
        try:
            # Another writer may have ended, and given up its claim, since the folder was listed.
            _refuse_objects(folder, requests.list_objects(folder).keys() - {CLAIM})
        except BaseException:
            self.discard()
            raise

    def write(self, key: str, content: bytes | NDArray[np.uint8], *, cached: bool = True) -> None:
        """Put one object."""
        self._keys.append(key)
        requests.write(self._folder, key, content)

    def commit(self, keys: Iterable[str], last_key: str, last: bytes) -> None:
        """Put ``last`` if there is none, then give up the claim."""
        try:
            requests.write(self._folder, last_key, last, new=True)
        except IdentityError:
            raise
        except StreammcError:
            self._last = last_key  # it may be there: only the answer is missing
            raise
        self._open = False
        with suppress(StreammcError):  # the store is complete; the claim is ignored beside it
            requests.delete(self._folder, [CLAIM])

    def discard(self) -> None:
        """Delete the objects and the claim; do nothing after :meth:`commit`.

        A manifest that may be there goes first: at no instant is it there without its objects, and
        if it cannot be deleted, they stay. A put of it that is still on its way may arrive after
        the first deletion, so that it is deleted again before the claim is given up.
        """
        if self._open:
            self._open = False
            last = [] if self._last is None else [self._last]
            with suppress(StreammcError):
                requests.delete(self._folder, [*last, *self._keys, *last, CLAIM])


def _claimed(folder: CloudFolder) -> BusyError:
    return BusyError(
        f"expected {str(folder)!r} to be free, found a writer's claim {CLAIM!r}: wait for it, or "
        "if that process was killed, delete the objects there"
    )
