"""Receipts that killed commands left: begun, without a result, and without an output.

``NAME.config.json`` is one of streammc if it has what a command wrote before its work: what was
asked, no result, and the process that began it.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from streammc.errors import StreammcError
from streammc.owner_mark import Owner, state_of
from streammc.trace.debris import Debris
from streammc.trace.durable import read_file
from streammc.trace.lock import folder_lock

SUFFIX: Final = ".config.json"
_KEYS: Final = {"asked", "result", "owner"}
_LIMIT: Final = 1 << 24


@contextmanager
def judged_receipt(path: Path) -> Iterator[Debris | None]:
    """Judge a file by its name and content; its folder is locked in the block.

    Yields ``None`` for a file that no command of streammc left, as far as can be proved.
    """
    with folder_lock(path.parent):  # a command that begins again writes the receipt first
        yield _judged(path)


def _judged(path: Path) -> Debris | None:
    output = path.with_name(path.name.removesuffix(SUFFIX))
    try:
        info = path.lstat()
        if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1 or os.path.lexists(output):
            return None
        found = json.loads(read_file(path, limit=_LIMIT))
        asked, owner = found["asked"], Owner(**found["owner"])
        begun = set(found) - {"replaces"} == _KEYS and found["result"] is None
        if not begun or not isinstance(asked["command"], str) or type(owner.pid) is not int:
            return None
        state = state_of(owner)
    except (OSError, StreammcError, ValueError, KeyError, TypeError, RecursionError):
        return None
    kept = None
    if state != "dead":
        where = f" on {owner.host!r}" if state == "elsewhere" else ""
        kept = f"process {owner.pid}{where} " + ("may live" if where else "lives")
    return Debris(path, "unfinished receipt", info.st_size, kept)
