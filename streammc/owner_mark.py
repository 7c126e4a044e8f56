"""The mark of a temporary folder: which process made it, so that the folder of a dead one is known.

A process id is used again, also by another container or machine that shares a file system. A mark
therefore names the start of the process, its boot, its namespace of process ids and its host.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args
from urllib.parse import quote, unquote

MARK: Final = ".streammc-owner."
"""Beginning of the name of a mark: an empty file, removed before a folder becomes a result.

The name says whose it is, ``.streammc-owner.PID.START.BOOT.NAMESPACE.HOST``: one call of the system
makes it, so that no kill leaves half of it.
"""
SUFFIX: Final = ".streammc-tmp"
"""End of the name of a file that is renamed when it is complete."""

Prefix = Literal[
    "streammc-",
    "streammc-effects-",
    "streammc-numba-",
    "streammc-predict-",
    "streammc-run-",
    "streammc-run-at-",
    "streammc-workers-",
]
"""Beginning of the name of a temporary folder."""
PREFIXES: Final[tuple[Prefix, ...]] = get_args(Prefix)
"""All of them, by which ``streammc gc`` finds the folders of killed processes."""

_MARK: Final = re.compile(rf"{re.escape(MARK)}(\d+)\.(\d*)\.([0-9a-f-]*)\.(\d*)\.(.*)")

State = Literal["alive", "dead", "elsewhere"]


@dataclass(frozen=True)
class Owner:
    """The process that made a folder; a text is empty where the system does not tell."""

    pid: int
    started: str
    """Start of the process, in ticks since the boot."""
    boot: str
    namespace: str
    """Namespace of process ids: containers of one machine have one each."""
    host: str


def this_process() -> Owner:
    """Return the owner of folders that this process makes."""
    pid = os.getpid()
    return Owner(pid, _started(pid), _boot(), _namespace(), os.uname().nodename)


def mark(folder: Path) -> None:
    """Mark a folder as made by this process.

    Raises
    ------
    OSError
        If the system refuses, or the folder has a mark.
    """
    owner = this_process()
    words = owner.started, owner.boot, owner.namespace, quote(owner.host, safe="")
    name = f"{MARK}{owner.pid}.{'.'.join(words)}"
    os.close(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))


def unmark(folder: Path) -> None:
    """Remove the mark of a folder, if there is one."""
    for name in _marks(folder):
        (folder / name).unlink(missing_ok=True)


def _marks(folder: Path) -> list[str]:
    """Return the names of the marks in a folder: one, or none."""
    return [name for name in os.listdir(folder) if name.startswith(MARK)]


def owner_of(folder: Path) -> Owner | None:
    """Return the process that made a folder; ``None`` without a mark of streammc."""
    try:
        for name in _marks(folder):
            found = _MARK.fullmatch(name)
            info = (folder / name).lstat()
            if found is not None and stat.S_ISREG(info.st_mode) and info.st_size == 0:
                return Owner(int(found[1]), found[2], found[3], found[4], unquote(found[5]))
    except OSError:
        return None
    return None


def state_of(owner: Owner) -> State:
    """Return whether the process of a mark lives; ``elsewhere`` if only others can know.

    A process of an earlier boot of this host is dead. One of another host, or of another
    container, cannot be seen from here.
    """
    here = this_process()
    if owner.host == here.host and owner.boot and here.boot and owner.boot != here.boot:
        return "dead"
    if (owner.host, owner.boot, owner.namespace) != (here.host, here.boot, here.namespace):
        return "elsewhere"
    if not is_running(owner.pid):
        return "dead"
    return "alive" if owner.started == _started(owner.pid) else "dead"


def is_running(pid: int) -> bool:
    """Return whether a process of this machine has the id ``pid`` and has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    fields = _fields(pid)
    return not fields or fields[0] != "Z"


def unfinished(path: Path) -> Path:
    """Return the temporary name, beside ``path``, of a file that is renamed when complete."""
    return path.with_name(f".{path.name}.{os.getpid()}{SUFFIX}")


@contextmanager
def marked_folder(prefix: Prefix) -> Iterator[Path]:
    """Make a marked folder among the system's temporary ones; remove it on any exit."""
    folder = new_folder(prefix)
    try:
        yield folder
    finally:
        with suppress(OSError):
            remove(folder)


def new_folder(prefix: Prefix) -> Path:
    """Return a new marked folder among the system's temporary ones."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    mark(folder)
    return folder


def remove(folder: Path) -> None:
    """Remove a folder, its mark last: what a killed process leaves of it can still be proved.

    Raises
    ------
    OSError
        If the system refuses; what is left of the folder has its mark.
    """
    if owner_of(folder) is None:
        with suppress(FileExistsError):
            mark(folder)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif not entry.name.startswith(MARK):
                os.unlink(entry.path)
    unmark(folder)
    os.rmdir(folder)


def _fields(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` from the state on; empty if there are none."""
    with suppress(OSError, UnicodeDecodeError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()
    return []


def _started(pid: int) -> str:
    fields = _fields(pid)
    return fields[19] if len(fields) > 19 else ""


def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _namespace() -> str:
    with suppress(OSError):
        return "".join(each for each in os.readlink("/proc/self/ns/pid") if each.isdecimal())
    return ""
