"""Results of blocks that a failed pass leaves on its cluster, for the same pass given again.

They stay in the memory of the workers, published under the token of the pass: a digest of the task,
its blocks and all versions. Nothing is read back into this process before the sums are complete.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from streammc.stores.cluster.worker_checks import versions
from streammc.stores.full_pass.row_blocks import Block

KNOWN: Final = ("streammc", "numpy", "abc", "builtins", "copyreg", "collections", "pathlib")
"""Packages whose code the versions of workers and client pin."""


class _Watch(pickle.Pickler):
    """Pickler that notes the packages of all classes and functions."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.packages: set[str] = set()

    def reducer_override(self, thing: Any) -> Any:
        """Note the package of a thing, and pickle it as usual."""
        for each in (thing, type(thing)):
            module = getattr(each, "__module__", None)
            if isinstance(module, str):
                self.packages.add(module.partition(".")[0])
        return NotImplemented


def pass_token(task: Any, blocks: Sequence[Block]) -> str | None:
    """Return a token that only an equal pass has; ``None`` if code of a user takes part.

    The sources of other packages are not among the versions that are compared: they may have
    changed under the same names.
    """
    file = io.BytesIO()
    watch = _Watch(file)
    try:
        watch.dump((task, tuple(blocks), tuple(versions().items())))
    except Exception:  # what a task holds decides which error this is; cloudpickle may know better
        return None
    if not watch.packages <= {*KNOWN}:
        return None
    return hashlib.sha256(file.getbuffer()).hexdigest()[:32]


def kept_results(client: Any, token: str | None) -> dict[str, Any]:
    """Return the futures that a failed pass of this token has left, by key."""
    name = f"streammc-{token}"
    if token is None or name not in client.list_datasets():
        return {}
    found = client.get_dataset(name)
    held = client.who_has(list(found.values()))  # a future just received does not know its status
    return {key: future for key, future in found.items() if held.get(key)}


def keep_results(client: Any, token: str | None, futures: Mapping[str, Any]) -> None:
    """Publish the futures that are finished; nothing if there are none or the cluster is gone."""
    done = {key: future for key, future in futures.items() if future.status == "finished"}
    if token is not None and done and client.status == "running":
        with suppress(Exception):  # the failure of the pass is what the user has to know
            client.publish_dataset(done, name=f"streammc-{token}", override=True)


def forget_results(client: Any, token: str | None) -> None:
    """Give up what a failed pass of this token has left."""
    name = f"streammc-{token}"
    with suppress(Exception):  # the sums are complete, whatever becomes of the cluster
        if token is not None and name in client.list_datasets():
            client.unpublish_dataset(name)
