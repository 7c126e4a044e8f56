"""The mark of the command that made an output, read from it; see ``streammc.command_mark``."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from streammc.command_mark import MADE_BY
from streammc.errors import StreammcError

_HEAD_BYTES: Final = 4096
_IN_FILE: Final = re.compile(rb'"made_by"(?:: | content=)"([0-9a-f]{64})"')


def made_by(output: str | os.PathLike[str]) -> str | None:
    """Return the mark of the command that made an output; ``None`` if it has none."""
    from streammc.stores.format.manifest import read_manifest
    from streammc.trace.durable import read_file
    from streammc.trace.kinds import STORE_MANIFEST
    from streammc.trace.sealed import DOCUMENT_LIMIT, unseal

    path = Path(output)
    try:
        if path.is_file():
            with open(path, "rb") as file:
                found = _IN_FILE.search(file.read(_HEAD_BYTES))
            return None if found is None else found[1].decode()
        if (path / STORE_MANIFEST).exists():
            return read_manifest(path).made_by
        _, own = unseal(read_file(path / "zarr.json", limit=DOCUMENT_LIMIT), path / "zarr.json")
    except (OSError, StreammcError):
        return None
    mark = own.get(MADE_BY)
    return mark if isinstance(mark, str) else None


def with_mark(page: str, mark: str) -> str:
    """Return a page of HTML with the mark of a command in its head."""
    return page.replace("<head>", f'<head>\n<meta name="{MADE_BY}" content="{mark}">', 1)
