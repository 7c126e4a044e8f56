"""SIGKILL at random instants and at every call that changes the disk: checks 17 and 18."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks_of_trust import rounds
from command_line import PROGRAM, streammc

from streammc.trace.run_directory import RunDirectory

Recorded = Callable[[str, object], None]
HERE = Path(__file__).resolve().parent
KILLS = HERE / "command_kills.py"
EXAMPLE = HERE.parent / "trace" / "example_job.py"
CALLS = ("write", "rename", "fsync", "unlink", "mkdir", "ftruncate", "symlink")
KILLED = (137, -9)


def kills(folder: Path, *words: object) -> dict[str, Any]:
    """Return what became of the commands that were killed."""
    done = subprocess.run(
        [sys.executable, KILLS, folder, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    found: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        found |= json.loads(line)
    return found


@pytest.mark.trust(17)
@pytest.mark.slow
def test_a_command_killed_at_any_instant_gives_the_same_result_when_given_again(
    tmp_path: Path, record_property: Recorded
) -> None:
    found = kills(tmp_path, each := rounds(4, 50))
    commands = ("ingest", "summarize", "sample", "predict")
    assert {each} == {found[name]["identical"] for name in commands}
    dead = sum(found[name]["killed"] for name in commands)
    assert dead >= 2 * each  # the others had ended before
    record_property(
        "figure",
        f"{4 * each} of {4 * each} results identical after SIGKILL ({dead} in time), of ingest, "
        f"summarize, sample and predict; {found['sample']['draws kept']} committed draws, 0 lost",
    )


@pytest.mark.trust(17)
@pytest.mark.slow
def test_a_root_document_written_in_place_is_caught_by_kills(
    tmp_path: Path, record_property: Recorded
) -> None:
    caught = kills(tmp_path, 12, "torn")["sample"]["caught"]
    assert "the file is damaged" in caught
    record_property("caught", "a root document that is written in place, in two parts 50 ms apart")


def strace(call: str, number: int, *words: object) -> int:
    """Run a program that is killed at the ``number``-th call of one of its threads."""
    options = ["-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}"]
    inject = ["-e", f"inject={call}:signal=SIGKILL:when={number}"]
    command = ["strace", *options, *inject, *map(str, words)]
    return subprocess.run(command, capture_output=True, check=False).returncode


def need_strace() -> None:
    if shutil.which("strace") is None:
        pytest.skip("no strace")
    if subprocess.run(["strace", "-qq", "true"], capture_output=True, check=False).returncode:
        pytest.skip("strace may not trace here")


def run_digest(path: Path) -> str:
    return RunDirectory.open(path).digest()


def store_digest(path: Path) -> str:
    found = streammc("verify", path, "--json").json
    assert found["ok"]
    return str(streammc("info", path, "--json").json["fingerprint"])


@pytest.mark.trust(18)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["run", "store"])
def test_a_kill_at_any_system_call_gives_the_same_result_when_given_again(
    kind: str, tmp_path: Path, record_property: Recorded
) -> None:
    need_strace()
    rng = np.random.default_rng(1)
    table = np.c_[rng.integers(0, 2, 3000), rng.normal(size=3000)]
    np.savetxt(tmp_path / "t.csv", table, delimiter=",", header="y,x", comments="", fmt="%.4g")
    words, digest = ([sys.executable, EXAMPLE], run_digest), (PROGRAM, store_digest)
    program, content = words if kind == "run" else digest

    def arguments(path: Path) -> list[object]:
        if kind == "run":
            return [*program, path, 33]
        return [*program, "ingest", tmp_path / "t.csv", path, "--response", "y", "--seed", "1"]

    whole = tmp_path / "whole"
    subprocess.run(list(map(str, arguments(whole))), check=True, capture_output=True)
    expected, points = content(whole), 0
    for call in CALLS:
        for number in range(1, rounds(2, 1000)):
            path = tmp_path / "out"
            code = strace(call, number, *arguments(path))
            if code not in KILLED:
                assert 0 == code
                shutil.rmtree(path)
                break
            again = subprocess.run(
                list(map(str, arguments(path))), capture_output=True, text=True, check=False
            )
            assert 0 == again.returncode, again.stderr
            assert expected == content(path), (call, number)
            shutil.rmtree(path)
            points += 1
    assert points >= 4
    record_property("figure", f"{kind}: {points} of {points} calls of strace identical")
