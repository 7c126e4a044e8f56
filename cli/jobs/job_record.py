"""The end of a job: ``summary.json``, the command of ``--notify``, and the lock of the file."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import streammc
from streammc.cli.configuration import write_json
from streammc.cli.input_description import absolute_input
from streammc.cli.jobs.job_file import JobFile, absolute, with_paths
from streammc.cli.output import Output, utc_now
from streammc.errors import BusyError, IdentityError, one_line

DONE: Final = "done"
MISSED: Final = "missed"
"""The stopping rule of the job is not met."""
INTERRUPTED: Final = "interrupted"
FAILED: Final = "failed"
BUSY: Final = "busy"
RUNNING: Final = "running"
_OUTCOMES: Final = {
    0: DONE,
    1: MISSED,
    75: BUSY,
    130: INTERRUPTED,
    129: INTERRUPTED,
    143: INTERRUPTED,
}
NOTIFY_SECONDS: Final = 60.0
SHORT_SECONDS: Final = 3.0
"""Time of the command of ``--notify`` after a signal to stop."""


def outcome_of(exit_code: int) -> str:
    """Return the outcome of a job by its exit code."""
    return _OUTCOMES.get(exit_code, FAILED)


def job_id(job: JobFile) -> str:
    """Return the id of a job: a digest of its keys, with all paths from the root."""
    keys = asdict(with_paths(job, absolute, absolute_input))
    if keys["report"] is None:  # ids are older than this table
        del keys["report"]
    text = json.dumps(keys, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@contextmanager
def job_lock(path: str) -> Iterator[None]:
    """Lock a job file: one process at a time carries it out.

    Raises
    ------
    BusyError
        If another process carries it out.
    """
    with open(path, "rb") as file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise BusyError(
                    f"expected the job {path!r} to be free, found it carried out by another "
                    "process: wait until that has ended, or stop it"
                ) from None
            # A file system without locks: those of the run and of the outputs remain.
        yield


class JobRecord:
    """The summary of a job, written at its end.

    Parameters
    ----------
    file
        Path of the job file.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.path: Path | None = None
        """Path of the summary; ``None`` as long as the job is not known."""
        self.made: list[str] = []
        """Real paths of the outputs that were made in this start."""
        self.document: dict[str, Any] = {
            "job": None,
            "file": os.path.abspath(file),
            "version": streammc.__version__,
            "outcome": RUNNING,
            "exit_code": None,
            "error": None,
            "started": utc_now(),
            "ended": None,
            "stages": [],
            "sets": [],
        }

    def begin(self, job: JobFile, identity: str) -> Any:
        """Set the job, and remember how it ended before; return the sets of outputs of then.

        Raises
        ------
        IdentityError
            If the summary, which says what may be deleted, is that of another job file.
        """
        self.path = Path(job.outputs.summary)
        self.document["job"] = identity
        self._before = _read(self.path)
        other = self._before.get("file")
        if other == self.document["file"]:
            return self._before.get("sets")
        if job.outputs.keep is not None and isinstance(other, str) and os.path.exists(other):
            raise IdentityError(
                f"expected a summary of this job alone for outputs.keep, found that of {other!r} "
                f"at {str(self.path)!r}: name another outputs.summary"
            )
        return None

    def running(self) -> None:
        """Write that the job runs."""
        assert self.path is not None
        write_json(self.path, self.document)

    def add(self, stage: Mapping[str, Any]) -> None:
        """Add a stage that has ended."""
        self.document["stages"].append(dict(stage))

    def end(self, exit_code: int, error: Mapping[str, Any] | None = None) -> None:
        """Write how the job ended: as before, if it had ended so and nothing was done."""
        outcome = outcome_of(exit_code)
        self.document |= {"outcome": outcome, "exit_code": exit_code, "ended": utc_now()}
        self.document["error"] = None if error is None else dict(error)
        if self.path is None:  # also where another process carries out the job
            return
        kept = all(stage["outcome"] == "kept" for stage in self.document["stages"])
        same = ("job", "outcome", "exit_code")
        if kept and error is None and all(self._before.get(k) == self.document[k] for k in same):
            self.document = self._before
        write_json(self.path, self.document)

    def notify(self, command: str, output: Output) -> None:
        """Run the command of ``--notify``; its failure is a warning."""
        found = self.document
        interrupted = found["outcome"] == INTERRUPTED
        environment = {
            "STREAMMC_JOB": found["job"] or "",
            "STREAMMC_JOB_FILE": found["file"],
            "STREAMMC_OUTCOME": found["outcome"],
            "STREAMMC_EXIT_CODE": str(found["exit_code"]),
            "STREAMMC_SUMMARY": "" if self.path is None else os.path.abspath(self.path),
        }
        seconds = SHORT_SECONDS if interrupted else NOTIFY_SECONDS
        try:
            code = subprocess.run(
                command,
                shell=True,  # the user's own command line
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                timeout=seconds,
                check=False,
            ).returncode
            fault = f"exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            fault = f"no end after {seconds:g} s"
        except OSError as error:
            fault = error.strerror or str(error)
        if fault:
            output.warn(
                f"expected the command of --notify to succeed, found {one_line(fault)}: check "
                f"{command!r}; the outcome of the job, {found['outcome']}, stands"
            )


def _read(path: Path) -> dict[str, Any]:
    """Return the summary at a path; empty if there is none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
