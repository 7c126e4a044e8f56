"""The first use says that it compiles; every later one is silent about it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streammc import first_use
from streammc.first_use import Compiling

COMPILES = "from streammc.numerics.cholesky import factor; factor.ready()"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("nested", [pytest.param(False, marks=pytest.mark.slow), True])
def test_seconds_are_counted_until_compiling_is_over(nested: bool) -> None:
    told: list[tuple[int, bool]] = []
    compiling = Compiling(lambda seconds, over: told.append((seconds, over)))
    began = time.monotonic()
    compiling.began()
    if nested:  # a function that calls others
        compiling.began()
        compiling.ended()
    time.sleep(2.3)
    compiling.ended()
    while not any(over for _, over in told) and time.monotonic() < began + 20.0:
        time.sleep(0.02)
    taken = int(time.monotonic() - began)
    assert told[0] == (1, False)
    assert told[-1][1]
    assert 2 <= told[-1][0] <= taken
    assert [seconds for seconds, over in told if not over] == sorted({s for s, o in told if not o})


@pytest.mark.parametrize("seconds", [0.1, 0.7])  # within a second of its begin others may follow
def test_a_moment_of_compiling_is_not_told_of(seconds: float) -> None:
    told: list[tuple[int, bool]] = []
    compiling = Compiling(lambda seconds, over: told.append((seconds, over)))
    compiling.began()
    time.sleep(seconds)
    compiling.ended()
    time.sleep(0.8)
    assert told == []


def test_one_line_counts_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    for seconds in (1, 2, 3):
        first_use.tell(seconds, False)
    first_use.tell(4, True)
    text = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert text.count("\n") == 1
    assert text.endswith("compiling, once (a minute or two the first time): 4 s\n")
    assert text.count("\r") == 4


def test_a_log_gets_a_line_every_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    for seconds in range(1, 62):
        first_use.tell(seconds, False)
    first_use.tell(62, True)
    lines = sys.stderr.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.split()[-2] for line in lines] == ["1", "31", "61"]


@pytest.mark.slow
def test_a_new_cache_is_told_of_once(tmp_path: Path) -> None:
    """A process of its own imports compiled functions, twice."""
    environment = {**os.environ, "STREAMMC_CACHE_DIR": str(tmp_path)}
    said = [
        subprocess.run(
            [sys.executable, "-c", f"{COMPILES}; import time; time.sleep(0.2)"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stderr
        for _ in range(2)
    ]
    assert "compiling, once" in said[0]
    assert said[1] == ""
