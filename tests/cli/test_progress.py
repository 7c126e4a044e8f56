from __future__ import annotations

import json
import sys

import pytest

from streammc.cli import progress as module
from streammc.cli.output import Output
from streammc.cli.progress import Progress
from streammc.cli.signals import Interrupted, Interruption


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def test_a_plain_line_every_few_seconds(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(Output()) as progress:
        for step in range(101):
            progress("draws", step, 100, {"acceptance_rate": 0.8123})
            clock.now += 0.25
    lines = capsys.readouterr().err.splitlines()
    assert 5 == len(lines)
    assert lines[0] == "draws 20/100, 5 s, about 20 s left, acceptance_rate 0.812"
    assert lines[-1].startswith("draws 100/100, 25 s")


def test_short_work_says_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(Output()) as progress:
        progress("pass", 0, 2)
        progress("pass", 2, 2)
    assert ("", "") == capsys.readouterr()


def test_the_first_iteration_is_said(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(Output(log_format="json")) as progress:
        progress("pass", 2, 2)
        progress("start", 0, 100, {})
        progress("warmup", 100, 1000, {})
    assert "start" == json.loads(capsys.readouterr().err)["phase"]


def test_an_unknown_total(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(Output()) as progress:
        progress("scan", 0, None)
        clock.now += 6.0
        progress("scan", 50_000, None)
    assert "scan 50,000, 6 s\n" == capsys.readouterr().err


def test_quiet_shows_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(Output(quiet=True)) as progress:
        progress("pass", 0, 9)
        clock.now += 60.0
        progress("pass", 9, 9)
    assert ("", "") == capsys.readouterr()


def test_json_lines_carry_the_facts(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(Output(log_format="json")) as progress:
        progress("draws", 0, 9)
        clock.now += 6.0
        progress("draws", 3, 9, {"rows": 12})
    line = json.loads(capsys.readouterr().err)
    assert ("draws", 3, 9, 12) == (line["phase"], line["done"], line["total"], line["rows"])


def test_a_bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    output = Output()
    with Progress(output) as progress:
        progress("draws", 3, 9, {"acceptance_rate": 0.8})
        output.note("a line [with] brackets above it")
    captured = capsys.readouterr()
    assert "" == captured.out
    assert "3/9" in captured.err
    assert "a line [with] brackets above it" in captured.err
    assert output.live is None


def test_a_signal_ends_a_pass_but_leaves_chains_to_their_commit() -> None:
    interruption = Interruption()
    progress = Progress(Output(quiet=True), interruption)
    progress("pass", 1, 2)
    interruption.signum = 15
    progress("draws", 1, 2)
    with pytest.raises(Interrupted):
        progress("pass", 1, 2)
