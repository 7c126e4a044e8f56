"""Unfinished outputs: the process and the command that make one, its name, its folder.

A process marks its temporary folders, so that ``streammc gc`` can prove that nobody works in one.
A process id is used again, also by another container or machine that shares a file system. The
mark therefore names the start of the process, its boot, its namespace of process ids and its host.

A command marks its output. A receipt beside an output says what was asked. Until the receipt has a
result, as after a kill, the mark alone tells the output of that command from another one at its
path. It is a digest of what was asked, so that the same command makes the same bytes; fingerprints
do not contain it.

A result without a path is in a temporary folder, which is removed at the exit of its process. A
power cut can lose nothing there, so that its files are written without fsync: a commit of 40 files
takes 2 ms instead of 20 to 100. Files of a small result are not written before somebody opens its
path: the 400 files of a run take 20 to 200 ms, by the file system, and most are never read.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import quote, unquote

from streammc.errors import ConfigError, StreammcError

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


def replace_file(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a file in one piece, in place of an old one.

    ``sync`` makes it durable. An OSError names ``path``, also that of a full disk, which has none.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}{SUFFIX}")
    try:
        with open(partial, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise


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


MADE_BY: Final = "made_by"
"""Key of the mark in the document of an output."""

_mark: ContextVar[str | None] = ContextVar("mark of the command", default=None)
_announced: ContextVar[Callable[[Mapping[str, Any]], None] | None] = ContextVar(
    "listener of the command", default=None
)


def command_digest(asked: Mapping[str, Any]) -> str:
    """Return the SHA-256 of settings and inputs of a command, which are JSON types."""
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def making(
    digest: str, announced: Callable[[Mapping[str, Any]], None] | None = None
) -> Iterator[None]:
    """Let outputs that are committed in the block carry the mark of a command.

    An output that cannot carry it, a CSV file, is announced just before it appears: ``announced``
    gets its facts, with its ``fingerprint``.
    """
    tokens = _mark.set(digest), _announced.set(announced)
    try:
        yield
    finally:
        _mark.reset(tokens[0])
        _announced.reset(tokens[1])


def announce(facts: Mapping[str, Any]) -> None:
    """Tell the command that an output without a mark is about to appear."""
    listener = _announced.get()
    if listener is not None:
        listener(facts)


def current_mark() -> str | None:
    """Return the mark of the command that makes outputs at present, if there is one."""
    return _mark.get()


def mark_entry(mark: str | None) -> dict[str, str]:
    """Return the entry of a document with a mark; empty without one."""
    return {} if mark is None else {MADE_BY: mark}


PARTIAL: Final = re.compile(r"(?P<output>.+)\.partial-(?P<pid>\d+)")
RESULT: Final = re.compile(r"\.(?P<output>.+)\.[0-9a-f]{8}\.partial")
FILE: Final = re.compile(rf"\.(?P<output>.+)\.(?P<pid>\d+){re.escape(SUFFIX)}")
_PULLING: Final = re.compile(r"(?P<output>.+)\.pulling")
# What tempfile adds to a prefix.
_TEMPORARY: Final = re.compile(rf"(?:{'|'.join(map(re.escape, PREFIXES))})[a-z0-9_]{{8}}")


def kind_of_name(name: str) -> str | None:
    """Return what a path of this name could be, if a process of streammc left it."""
    if FILE.fullmatch(name):
        return "unfinished file"
    if _PULLING.fullmatch(name):
        return "unfinished copy"
    if _TEMPORARY.fullmatch(name):
        return "temporary folder"
    stem = name.removesuffix(".old")
    if PARTIAL.fullmatch(stem) or RESULT.fullmatch(stem):
        return "unfinished result" if stem == name else "replaced result"
    return None


def refuse_reserved_name(path: Path) -> None:
    """Refuse an output that ``streammc gc`` could take for what a killed process left.

    A temporary folder is known by its mark, so that a name like one is no danger.

    Raises
    ------
    ConfigError
        If the name is that of an unfinished or replaced output.
    """
    kind = kind_of_name(path.name)
    if kind not in (None, "temporary folder"):
        article = "an" if kind.startswith("u") else "a"
        raise ConfigError(
            f"expected a name of its own for the output {str(path)!r}, found that of {article} "
            f"{kind}, which 'streammc gc' and later commands remove: choose another name"
        )


KEPT_BYTES: Final = 64 * 2**20
"""Bytes of unwritten results of a process together; beyond that the oldest are written."""

_folders: set[Path] = set()
"""Temporary folders of this process."""
_unwritten: dict[Path, tuple[int, Callable[[], None]]] = {}
"""Folder -> bytes of its result, and the function that writes it; oldest first."""
_writing: Final = threading.RLock()


def is_temporary(path: Path) -> bool:
    """Return whether ``path`` is in a temporary folder of this process."""
    return bool(_folders) and any(parent in _folders for parent in (path, *path.parents))


def is_temporary_folder(path: Path) -> bool:
    """Return whether ``path`` is itself a temporary folder of this process."""
    return path in _folders


def temporary_folder(prefix: Prefix) -> Path:
    """Return a new folder that is removed at the exit of this process, but not of its forks.

    The folder around it has the mark of this process, by which ``streammc gc`` knows what a killed
    process left.
    """
    around = new_folder(prefix)
    folder = around / (prefix.strip("-").rpartition("-")[2] or "result")
    folder.mkdir()
    _folders.add(folder)
    atexit.register(_remove, folder, os.getpid())
    return folder


def discard_folder(folder: Path) -> None:
    """Remove a temporary folder before the exit of this process."""
    _remove(folder, os.getpid())


def write_later(folder: Path, size: int, write: Callable[[], None]) -> None:
    """Let ``write`` fill a temporary folder when :func:`write_now` asks for it.

    It is called earlier if there are unwritten results of more than ``KEPT_BYTES``; one that then
    fails stays in memory.
    """
    with _writing:
        _unwritten[Path(os.path.realpath(folder))] = size, write
        while len(_unwritten) > 1 and sum(kept for kept, _ in _unwritten.values()) > KEPT_BYTES:
            oldest = next(iter(_unwritten))
            with suppress(StreammcError):
                write_now(oldest)
            if oldest in _unwritten:
                break


def write_now(folder: Path) -> None:
    """Write the result of a temporary folder, if it is not written yet.

    Raises
    ------
    StorageIOError, AccessError
        If the file system refuses; the result stays in memory.
    """
    if not _unwritten:
        return
    folder = Path(os.path.realpath(folder))
    with _writing:
        if (found := _unwritten.get(folder)) is not None:
            found[1]()
            del _unwritten[folder]


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        _unwritten.pop(Path(os.path.realpath(folder)), None)
        _folders.discard(folder)
        with suppress(OSError):
            remove(folder.parent)
