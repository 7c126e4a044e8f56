"""The path of ``info`` and ``verify``: what is at an address, a run or a store."""

from __future__ import annotations


def run_or_store(path: str) -> str:
    """Return ``path``, or the local folder of a run that is at an address."""
    from streammc.stores.cloud.address import CloudFolder, split_arrays, store_root
    from streammc.stores.cloud.requests import head
    from streammc.stores.cloud.staged_run import POINTER
    from streammc.trace.local_path import is_address
    from streammc.trace.places import run_folder

    if not is_address(path) or split_arrays(path)[1]:
        return path
    root = store_root(path)
    if isinstance(root, CloudFolder) and head(root, POINTER) is not None:
        return str(run_folder(path))
    return path
