"""Code of the user's own within a command: it may fail, but not end the command in silence."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

ENDED: Final = 70
MESSAGE: Final = "expected the code of the model to return, found that it ended the process with"


@contextmanager
def silent_ends_refused() -> Iterator[None]:
    """Make ``os._exit(0)`` in this process a failure while the block runs.

    A command ends with 0 only if its result is there, and code of a model can call anything.
    """
    plain, own = os._exit, os.getpid()

    def end(status: int) -> None:
        if not status and os.getpid() == own:
            os.write(2, f"streammc: {MESSAGE} os._exit(0): mend the model\n".encode())
            status = ENDED
        plain(status)

    os._exit = end  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = plain


def add_current_folder() -> None:
    """Let modules in the current folder be found, after all that is installed.

    Before it, a file such as ``numba.py`` beside the data would be run in place of the package.
    """
    if "" not in sys.path and not sys.flags.safe_path:
        sys.path.append("")


def leave_current_folder() -> None:
    """Take the current folder from the front of the path, where ``python -m`` puts it."""
    with suppress(OSError):
        if sys.path and not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):
            del sys.path[0]
