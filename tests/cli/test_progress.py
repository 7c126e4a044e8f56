from __future__ import annotations

import io
import json
import sys

import pytest
from rich.console import Console

from streammc.cli import progress as module
from streammc.cli.output import Output
from streammc.cli.progress import Progress
from streammc.cli.signals import Interrupted, Interruption
from streammc.cli.terminal_bar import TerminalBar


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


def test_progress_without_a_terminal_is_a_line_every_few_seconds(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress(Output()) as progress:
        for step in range(101):
            progress("draws", step, 100, {"acceptance_rate": 0.8123})
            clock.now += 0.25
    lines = capsys.readouterr().err.splitlines()
    assert 5 == len(lines)
    assert lines[0] == "draws 20/100, 5 s, about 20 s left, acceptance_rate 0.812"
    assert lines[-1].startswith("draws 100/100, 25 s")


def test_progress_of_short_work_is_silent(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(Output()) as progress:
        progress("pass", 0, 2)
        progress("pass", 2, 2)
    assert ("", "") == capsys.readouterr()


def test_progress_announces_the_first_iteration(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress(Output(log_format="json")) as progress:
        progress("pass", 2, 2)
        progress("start", 0, 100, {})
        progress("warmup", 100, 1000, {})
    assert "start" == json.loads(capsys.readouterr().err)["phase"]


def test_the_start_says_how_many_chains_and_iterations(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = {"chains": 4, "warmup": 1000, "draws": 2500, "warmup_done": 0, "draws_done": 0}
    with Progress(Output()) as progress:
        progress("start", 0, 100, plan)
        progress("start", 200, 300, {**plan, "warmup_done": 1000, "draws_done": 200})
        progress("start", 0, 100, {**plan, "chains": 1})
    begun, resumed, one = capsys.readouterr().err.splitlines()
    assert "sampling begins: 4 chains of 1,000 warm-up iterations and 2,500 draws" == begun
    assert resumed.startswith("sampling goes on: 4 chains of")
    assert resumed.endswith("of which 1,000 warm-up iterations and 200 draws are there")
    assert one.startswith("sampling begins: 1 chain of")


FACTS = {"log_lik_variance": 0.002066, "acceptance_rate": 0.9716, "step_size": 0.05321}


def drawn(width: int, facts: dict[str, float] | None = None) -> list[str]:
    """Return the lines of a bar half way through, on a terminal of this width."""
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None)
    bar = TerminalBar(console)
    for name, done in (("full pass", 1000), ("warm-up", 500)):
        task = bar.add_task(name, total=1000, facts=[])
        bar.update(task, completed=done, facts=module._ways(FACTS if facts is None else facts))
    console.print(bar.get_renderable())
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [44, 60, 80, 100, 132, 200])
def test_the_bar_keeps_its_width_and_the_facts_give_way(width: int) -> None:
    lines = drawn(width)
    assert 2 == len(lines), "a task takes one line"
    assert lines[0].count("━") >= 10
    assert "500/1000" in lines[1]
    assert "…" not in "".join(lines)


def test_80_columns_show_short_facts_and_a_wide_terminal_all() -> None:
    assert "accepted 0.97, variance 0.0021" in drawn(80)[1]
    assert "acceptance_rate 0.972" not in drawn(80)[1]
    assert "acceptance_rate 0.972, log_lik_variance 0.00207, step_size 0.0532" in drawn(132)[1]


def test_the_facts_vanish_before_the_bar() -> None:
    assert "accepted" not in drawn(44)[1]


def test_progress_shows_a_count_where_the_total_is_unknown(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_terminal_shows_a_progress_bar(
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


class Rows:
    row_bytes = 16


class Data:
    n_rows = 1000

    def rows(self) -> Rows:
        return Rows()


def test_lines_in_json_count_the_rows_and_bytes_of_a_phase(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress(Output(log_format="json")) as progress:
        progress.reads(Data())
        for phase in ("pass", "draws"):
            for step in range(1, 5):
                facts = {"rows": 30} if phase == "draws" else {}
                progress(phase, step, 4, facts)
                clock.now += 10.0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    found = [(line["phase"], line["rows"], line["bytes"]) for line in lines]
    assert [("pass", 500, 8000), ("pass", 750, 12000), ("pass", 1000, 16000)] == found[:3]
    assert [("draws", 60, 960), ("draws", 90, 1440), ("draws", 120, 1920)] == found[3:]
