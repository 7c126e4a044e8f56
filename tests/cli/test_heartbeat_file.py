"""``--heartbeat FILE``: the file that shows that a command is alive, and how far it is."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from command_line import streammc

from streammc.cli import output as module
from streammc.cli.output import HeartbeatFile, Output
from streammc.cli.progress import Progress


def read(path: Path) -> dict[str, object]:
    return dict(json.loads(path.read_text()))


def test_file_says_what_is_done_and_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST", 0.0)
    warned: list[str] = []
    path = tmp_path / "beat.json"
    with HeartbeatFile(str(path), "sample", warned.append) as file:
        assert "working" == read(path)["state"]
        output = Output(quiet=True, heartbeat_file=file, context={"stage": "sample"})
        Progress(output)("draws", 250, 1000, {"rows": 7})
        found = read(path)
        assert {"phase": "draws", "done": 250, "total": 1000, "draws": 250} == {
            name: found[name] for name in ("phase", "done", "total", "draws")
        }
        assert ("sample", "sample") == (found["stage"], found["command"])
    assert "ended" == read(path)["state"]
    assert [] == warned
    assert ["beat.json"] == [each.name for each in tmp_path.iterdir()]


def test_file_is_written_again_without_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.02)
    path = tmp_path / "beat.json"
    with HeartbeatFile(str(path), "sample", print):
        path.unlink()
        deadline = time.monotonic() + 20.0
        while not path.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_file_that_cannot_be_written_is_one_warning(tmp_path: Path) -> None:
    warned: list[str] = []
    with HeartbeatFile(str(tmp_path / "no" / "beat.json"), "sample", warned.append) as file:
        file.beat(done=1)
    assert 1 == len(warned)
    assert "No such file" in warned[0]
    assert "the work goes on" in warned[0]


def test_every_command_takes_a_heartbeat(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "beat.json"
    assert 0 == streammc("info", made / "run", "--heartbeat", path).code
    assert ("info", "ended") == (read(path)["command"], read(path)["state"])
