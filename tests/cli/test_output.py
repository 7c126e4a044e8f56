from __future__ import annotations

import io
import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from streammc.cli import output
from streammc.cli.output import Output, fields, number, plain, table, write_log
from streammc.errors import one_line


def test_one_line_escapes_line_breaks_and_control_characters() -> None:
    assert "a\\nb\\x1b[31m\\u2028c" == one_line("a\nb\x1b[31m\u2028c ")
    assert "naïve 😀" == one_line("naïve 😀")
    assert one_line("bad \udcff").isprintable()


def test_plain_makes_strict_json() -> None:
    value = {
        "a": np.float64(1.5),
        "b": [math.nan, math.inf, np.int64(3)],
        "c": Path("x"),
        4: (True, None),
        "d": np.array([1.0, math.nan]),
    }
    expected = {"a": 1.5, "b": [None, None, 3], "c": "x", "4": [True, None], "d": [1.0, None]}
    assert expected == plain(value)
    json.dumps(plain(value), allow_nan=False)


def test_plain_refuses_what_json_cannot_hold() -> None:
    with pytest.raises(TypeError):
        plain({"a": object()})


def test_result_is_one_json_object_or_text(capsys: pytest.CaptureFixture[str]) -> None:
    Output(json=True).result({"x": math.nan}, "text")
    assert {"x": None} == json.loads(capsys.readouterr().out)
    Output(quiet=True).result({"x": 1}, "text")
    assert "text\n" == capsys.readouterr().out


def test_quiet_silences_notes_and_keeps_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Output(quiet=True)
    printer.note("working")
    printer.warn("look")
    assert "streammc: warning: look\n" == capsys.readouterr().err


def test_log_lines_can_be_json(capsys: pytest.CaptureFixture[str]) -> None:
    Output(log_format="json").note("half\nway", done=5)
    line = json.loads(capsys.readouterr().err)
    assert ("info", "half\\nway", 5) == (line["level"], line["message"], line["done"])
    write_log("error", "x", as_json=True)
    assert "error" == json.loads(capsys.readouterr().err)["level"]


def test_table_aligns_numbers_right_and_words_left() -> None:
    rows = [["a", "1"], ["long", "10"]]
    assert "k      v\na      1\nlong  10" == table(["k", "v"], rows)
    assert "k     v\na     1\nlong  10" == table(["k", "v"], rows, words=True)


def test_fields_leave_out_missing_entries() -> None:
    assert "a   1,000\nbc  yes" == fields({"a": 1000, "bc": True, "d": None, "e": []})


def test_numbers_are_short() -> None:
    assert ["0.3333", "-", "-"] == [number(1 / 3), number(None), number(math.nan)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def use_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setattr(output, "_SILENT", 0.5)
    return made


def test_a_silent_command_counts_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    with output.Heartbeat(wanted=True) as beat:
        printer = Output(heartbeat=beat)
        time.sleep(2.4)
        printer.note("found")
    text = terminal.getvalue()
    assert text.startswith("working: 1 s")
    assert "working: 2 s" in text
    assert text.endswith("\r\x1b[2Kfound\n")


def test_a_bar_silences_the_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    with output.Heartbeat(wanted=True) as beat:
        beat.pause(True)
        time.sleep(1.6)
        assert not beat.show("compiling")
    assert terminal.getvalue() == ""


def test_no_seconds_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with output.Heartbeat(wanted=True) as beat:
        assert not beat.show("compiling")
    assert capsys.readouterr().err == ""
