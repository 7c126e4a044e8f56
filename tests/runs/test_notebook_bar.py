from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import streammc
from streammc.errors import ConfigError
from streammc.runs import interactive as module
from streammc.runs.interactive import NotebookBar, bar_html


class Cell:
    """The output of a cell: what was displayed, and how often the same line was updated."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.displayed = 0

    def display(self, shown: str, *, display_id: bool) -> Cell:
        assert display_id
        self.displayed += 1
        self.update(shown)
        return self

    def update(self, shown: str) -> None:
        self.lines.append(shown)


def test_a_run_updates_one_line_until_its_last_draw() -> None:
    cell = Cell()
    rng = np.random.default_rng(1)
    store = streammc.from_arrays(np.ones((200, 1)), rng.normal(size=200))
    bar = NotebookBar(cell.display, str)
    words: dict[str, Any] = {"draws": 40, "warmup": 20, "chains": 2, "seed": 1}
    streammc.sample(store, streammc.models.gaussian(), progress=bar, **words)
    assert cell.displayed == 1
    assert any("warm-up: 20 of 20" in line for line in cell.lines)
    assert any("draws: 40 of 40" in line for line in cell.lines)


def test_updates_between_the_first_and_the_last_are_spaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell, clock = Cell(), iter(0.01 * i for i in range(1000))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    bar = NotebookBar(cell.display, str)
    for done in range(1, 101):
        bar("draws", done, 100)
    assert 2 <= len(cell.lines) <= 8  # a second, with 0.2 s between two
    assert "100 of 100" in cell.lines[-1]


def test_a_phase_without_a_total_has_no_bar() -> None:
    assert "<progress" not in bar_html("newton", 3, None)
    assert 'value="3"' in bar_html("draws", 3, 10)
    assert "<b>" not in bar_html("<b>", 3, 10)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install"):
        streammc.notebook_bar()


def test_the_bar_of_a_notebook_is_displayed() -> None:
    pytest.importorskip("IPython")
    assert isinstance(streammc.notebook_bar(), NotebookBar)
