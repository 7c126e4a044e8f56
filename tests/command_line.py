"""Running ``streammc`` from a test: in this process, or as a program."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from streammc.cli import main

PROGRAM = [sys.executable, "-m", "streammc.cli"]


class Result(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def streammc(*words: str | Path) -> Result:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(word) for word in words])
    return Result(code, out.getvalue(), err.getvalue())


def program(
    *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Result:
    """Run a command as a program of its own."""
    finished = subprocess.run(
        [*PROGRAM, *map(str, words)],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Result(finished.returncode, finished.stdout, finished.stderr)


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of change of everything below a folder."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
    }


def digest(run: Path) -> str:
    """Return the digest of a run that verifies."""
    found = streammc("verify", run, "--json")
    assert 0 == found.code, found.err
    return str(found.json["digest"])


def limited(
    *words: str | Path,
    prepare: Callable[[], object] = lambda: None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Result:
    """Run a command as a program, after ``prepare`` in its process."""
    done = subprocess.run(
        [*PROGRAM, *map(str, words)],
        env={**os.environ, **(env or {})},
        cwd=cwd,
        preexec_fn=prepare,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def listen() -> None:
    """Undo what a shell does to its background jobs."""
    names = "SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGQUIT", "SIGTSTP"
    for signum in (signal.Signals[name] for name in names):
        signal.signal(signum, signal.SIG_DFL)
