from __future__ import annotations

from pathlib import Path

import pytest
from command_line import snapshot, streammc

from streammc.cli.demo import compare


@pytest.mark.slow
def test_demo_takes_real_rows_to_a_posterior_and_checks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = streammc("demo", "--json", "--quiet")
    assert (0, "") == (done.code, done.err)
    found = done.json
    assert found["agrees"]
    assert str(tmp_path / "streammc-demo") == found["directory"]
    assert 29 == len(found["comparison"]) == len(found["runs"]["hmc-ecs"]["parameters"])
    assert max(entry["mcse_sd"] for entry in found["comparison"].values()) < 0.05
    assert found["runs"]["hmc-ecs"]["audit"]["largest_correction"] < 0.1
    sampling = {name: run["sampling"] for name, run in found["runs"].items()}
    assert sampling["hmc-ecs"]["rows_per_iteration"] < sampling["hmc"]["rows_per_iteration"] / 10
    assert found["seconds"] < 240  # compiling included
    for name in ("store", "control_variates"):
        assert Path(found[name]).is_dir()
    before = snapshot(tmp_path)
    again = streammc("demo", "--quiet")
    assert 0 == again.code
    for word in ("beta[m_bb]", "difference/sd", "largest correction", "they agree"):
        assert word in again.out
    assert before == snapshot(tmp_path)


def test_comparison_of_demo_runs_reports_a_difference() -> None:
    one = {"beta[a]": {"mean": 0.0, "sd": 2.0, "mcse_mean": 0.03}}
    near = {"beta[a]": {"mean": 0.19, "sd": 2.0, "mcse_mean": 0.04}}
    far = {"beta[a]": {"mean": 0.5, "sd": 2.0, "mcse_mean": 0.04}}
    entry = compare(one, near)["beta[a]"]
    assert entry["agrees"]
    assert entry["difference_sd"] == pytest.approx(-0.095)
    assert entry["mcse_sd"] == pytest.approx(0.025)
    assert not compare(one, far)["beta[a]"]["agrees"]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = streammc("demo", tmp_path / "file")
    assert 73 == done.code
    assert str(tmp_path / "file") in done.err
