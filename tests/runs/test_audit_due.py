"""Default audit: which runs are audited, and the warning of those that are not."""

from __future__ import annotations

import json

import numpy as np
import pytest
from command_line import streammc as command

import streammc
from streammc.errors import SamplingWarning
from streammc.models import logistic
from streammc.runs import audit
from streammc.runs.job import run_job
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import from_arrays
from streammc.trace.run_directory import RunDirectory

SHORT = {"draws": 60, "warmup": 60, "chains": 2, "seed": 1}


def table(n):
    rng = np.random.default_rng(3)
    X = np.c_[np.ones(n), rng.normal(size=n)].astype(np.float32)
    return from_arrays(X, (rng.random(n) < 1 / (1 + np.exp(-X[:, 1]))).astype(float))


def test_run_on_a_million_rows_is_audited_by_default(tmp_path):
    """One piece of rows takes milliseconds: the whole audit takes a second."""
    found = run_job(
        RunRequest(table(1_000_000), logistic(), path=tmp_path / "run", **SHORT)
    ).summary
    assert found["sampling"]["sampler"] == "hmc-ecs"
    assert found["audit"]["draws"] == 120
    assert "not_audited" not in found


def test_skipped_audit_is_named_in_one_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "audit_seconds", lambda *_: 1e6)
    done = run_job(RunRequest(table(20_000), logistic(), path=tmp_path / "run", **SHORT))
    assert done.summary["audit"] is None
    (line,) = [line for line in done.warnings if "audited" in line]
    assert line == done.summary["not_audited"]
    assert line.startswith("not audited: it would take 1000000 s")
    assert f"`streammc audit {tmp_path / 'run'}`" in line
    assert "not audited" in command("diagnose", tmp_path / "run").err
    forced = run_job(
        RunRequest(table(20_000), logistic(), path=tmp_path / "f", audit=True, **SHORT)
    )
    assert forced.summary["audit"] is not None
    refused = run_job(
        RunRequest(table(20_000), logistic(), path=tmp_path / "r", audit=False, **SHORT)
    )
    assert refused.summary["audit"] is None
    assert "not_audited" not in refused.summary
    assert not [line for line in refused.warnings if "audited" in line]


def test_audit_time_is_compared_with_draws_passes_and_warm_up(tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "_CHEAP_SECONDS", 0.0)
    monkeypatch.setattr(audit, "pass_seconds", lambda _: 1e5)
    for expected, audited in ((0.99e5, True), (2e5, False)):
        monkeypatch.setattr(audit, "audit_seconds", lambda *_, s=expected: s)
        done = run_job(RunRequest(table(20_000), logistic(), path=tmp_path / f"{audited}", **SHORT))
        assert (done.summary["audit"] is not None) == audited


def test_later_audit_removes_the_warning_of_the_skipped_one(tmp_path, monkeypatch):
    from streammc.stores.simulation import simulate

    simulate("logistic", tmp_path / "store", 20_000, 2, 1)
    monkeypatch.setattr(audit, "audit_seconds", lambda *_: 1e6)
    store = streammc.open_store(tmp_path / "store")
    with pytest.warns(SamplingWarning, match="not audited"):
        streammc.sample(store, logistic(), path=tmp_path / "run", **SHORT)
    words = ("--model", "logistic", "--draws", "60", "--warmup", "60", "--chains", "2")
    made = command("sample", tmp_path / "store", "-o", tmp_path / "r", *words, "--json")
    assert made.json["not_audited"] in made.err
    done = command("audit", tmp_path / "r", "--json")
    assert done.json["audit"]["draws"] == 120
    after = command("diagnose", tmp_path / "r", "--json")
    assert "not_audited" not in json.dumps(after.json)
    assert "not audited" not in after.err


def test_an_audit_that_is_asked_for_later_is_made_from_the_same_draws(tmp_path):
    path = tmp_path / "run"
    data, sampler = table(20_000), streammc.samplers.hmc_ecs()
    given = {"sampler": sampler, "path": path, **SHORT}
    before = run_job(RunRequest(data, logistic(), audit=False, **given))
    digest = RunDirectory.open(path).digest()
    assert before.summary["audit"] is None
    for again in (False, "auto"):
        assert not run_job(RunRequest(data, logistic(), audit=again, **given)).changed
    found = run_job(RunRequest(data, logistic(), audit=True, **given))
    assert (True, 120) == (found.changed, found.summary["audit"]["draws"])
    assert digest == RunDirectory.open(path).digest()
    assert not run_job(RunRequest(data, logistic(), audit=True, **given)).changed
    exact = {**given, "sampler": streammc.samplers.hmc(), "path": tmp_path / "exact"}
    run_job(RunRequest(data, logistic(), **exact))
    assert not run_job(RunRequest(data, logistic(), audit=True, **exact)).changed
