"""A run of very many commits: memory, descriptors, folders and the time of a commit: check 49."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from checks_of_trust import rounds

PROGRAM = Path(__file__).with_name("many_commits.py")


def committed(path: Path, commits: int, kept: int = 0) -> dict[str, float]:
    """Commit so many intervals of one draw in a process of their own; return what grew."""
    words = [sys.executable, PROGRAM, path, str(commits), str(kept)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


@pytest.mark.trust(49)
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_commits_cost_the_same_after_very_many(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    commits = rounds(2_000, 100_000)
    few, found = committed(tmp_path / "few", 100), committed(tmp_path / "many", commits)
    # At small counts the pages of the allocator itself are a larger share: 0.8 to 1.0 MB of it.
    assert found["slope"] < rounds(3, 1) * 2**20
    assert found["checkpoint"] == few["checkpoint"]
    assert commits + 1 == found["chunks"]  # the draws themselves, and a document
    assert found["root"] < few["root"] + 100
    assert found["ratio"] < 1.5
    record_property(
        "figure",
        f"{commits:,} commits: {found['slope'] / 2**20:.2f} MB per 10,000, descriptors constant, "
        f"{found['checkpoint']:.0f} files of checkpoints, time at the end {found['ratio']:.2f} "
        "of that at the start",
    )


@pytest.mark.trust(49)
@pytest.mark.slow
def test_a_growing_list_of_draws_is_caught(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    found = committed(tmp_path / "run", 600, kept=8_000)
    assert found["slope"] > 40 * 2**20
    record_property(
        "caught", f"8 kB kept of each commit: {found['slope'] / 2**20:.0f} MB per 10,000"
    )
