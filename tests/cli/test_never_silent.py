"""On a terminal no command leaves its user without a sign of life for more than 5 s."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import time
from pathlib import Path

import pytest
from command_line import PROGRAM

LONGEST = 5.0
_CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\s")
SHORT = ("--draws", "50", "--warmup", "50", "--chains", "2")


def watch(words: list[str], environment: dict[str, str]) -> tuple[int, float, str]:
    """Run a command on a pseudo-terminal; return its code, longest silence and text."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(environment, TERM="xterm-256color", COLUMNS="80")
        os.execv(words[0], words)
    said, longest, text = time.monotonic(), 0.0, b""
    while True:
        ready, _, _ = select.select([terminal], [], [], 0.5)
        try:
            data = os.read(terminal, 65536) if ready else b""
        except OSError:  # the child has closed its side
            break
        text += data
        if _CONTROL.sub(b"", data):
            now = time.monotonic()
            longest, said = max(longest, now - said), now
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    silence = max(longest, time.monotonic() - said)
    return os.waitstatus_to_exitcode(status), silence, text.decode(errors="replace")


def test_watch_measures_the_longest_silence() -> None:
    """The partner: a program that is silent for a second, but for control characters."""
    program = (
        "import sys, time; print('a', flush=True); time.sleep(0.6);"
        "print('\\x1b[2K\\r', end='', flush=True); time.sleep(0.6); print('b'); sys.exit(3)"
    )
    code, silence, text = watch([sys.executable, "-c", program], {})
    assert (code, "a" in text, "b" in text) == (3, True, True)
    assert 1.0 <= silence < 3.0


@pytest.fixture
def require_pace() -> None:
    """Leave a test out on a machine on which Python itself takes seconds to start."""
    began = time.monotonic()
    os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", "import numba, xarray"])
    if time.monotonic() - began > LONGEST / 2:
        pytest.skip("importing numba and xarray alone takes half of the time allowed")


def commands(folder: Path) -> list[tuple[str, ...]]:
    store, run = str(folder / "s.zarr"), str(folder / "run")
    return [
        ("simulate", "logistic", store, "--rows", "50000", "--dim", "4", "--seed", "1"),
        ("summarize", store, "--model", "logistic"),
        ("sample", store, "-o", run, "--model", "logistic", "--seed", "1", "--audit", *SHORT),
        ("diagnose", run),
        ("predict", run, store, "-o", str(folder / "p.zarr"), "--predict-draws", "20"),
        ("audit", run),
        ("verify", store),
        ("info", run),
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("require_pace")
@pytest.mark.parametrize("cache", ["as it is", "empty"])
def test_every_command_shows_progress_within_seconds(tmp_path: Path, cache: str) -> None:
    environment = {"STREAMMC_CACHE_DIR": str(tmp_path / "cache")} if cache == "empty" else {}
    for words in commands(tmp_path):
        code, silence, text = watch([*PROGRAM, *words], environment)
        assert code == 0, text[-2000:]
        assert silence <= LONGEST, (words, silence, text[-2000:])
        if cache == "empty" and words[0] == "summarize":
            assert "compiling, once" in text
