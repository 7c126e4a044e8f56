"""Ctrl-C in Python: the draws so far are returned with a warning."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import streammc
from streammc.errors import SamplingWarning
from streammc.stores import from_arrays

OPTIONS = {"draws": 3000, "warmup": 200, "chains": 2, "seed": 1}


@pytest.fixture(scope="module")
def store():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 2))
    return from_arrays(X, (rng.random(3000) < 1 / (1 + np.exp(-X[:, 0]))).astype(float))


def interrupt(phase):
    def progress(found, done, total, facts):
        if found == phase and done:
            signal.raise_signal(signal.SIGINT)

    return progress


@pytest.mark.parametrize(("phase", "found"), [("draws", "of 3000 draws"), ("warmup", "no draw")])
def test_an_interrupted_run_warns_and_has_a_summary(store, tmp_path, phase, found):
    model, path = streammc.models.logistic(), tmp_path / "run"
    with pytest.warns(SamplingWarning, match=f"interrupted: each chain has .*{found}.* go on"):
        run = streammc.sample(store, model, path=path, progress=interrupt(phase), **OPTIONS)
    said = streammc.facts(run)["summary"]
    assert not said["finished"]
    draws = run["posterior"].sizes["draw"]
    assert draws == said["sampling"]["draws"] < 3000
    assert (draws > 0) == (phase == "draws")
    assert ("beta[x0]" in said["parameters"]) == (phase == "draws")
    whole = streammc.sample(store, model, path=path, audit=False, **OPTIONS)
    plain = streammc.sample(store, model, path=tmp_path / "plain", audit=False, **OPTIONS)
    np.testing.assert_array_equal(whole["posterior"]["beta"], plain["posterior"]["beta"])
    assert "finished" not in streammc.facts(whole)["summary"]


def test_a_temporary_run_is_gone_when_its_process_has_ended():
    code = """
import numpy as np, streammc
x = np.random.default_rng(1).normal(size=(500, 1))
store = streammc.from_arrays(x, (x[:, 0] > 0.3).astype(float))
model = streammc.models.logistic()
run = streammc.sample(store, model, chains=2, draws=50, warmup=50, audit=False, seed=1)
print(run.encoding["source"], streammc.predict(run, store).sizes["row"])
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    path, rows = done.stdout.split()
    assert rows == "500"
    assert Path(path).is_absolute()
    assert not Path(path).exists()


def test_a_run_without_a_path_is_that_at_a_path(tmp_path):
    x = np.random.default_rng(1).normal(size=(400, 2))
    store = streammc.from_arrays(x, (x[:, 0] > 0.3).astype(float))
    model = streammc.models.logistic()
    options = {"chains": 2, "draws": 60, "warmup": 60, "audit": False, "seed": 1}
    held = streammc.sample(store, model, **options)
    assert [] == list(Path(held.encoding["source"]).iterdir())
    written = streammc.sample(store, model, path=tmp_path / "run", **options)
    assert written.equals(held)
    prediction = streammc.predict(held, store, seed=1)  # opens the run by its path
    assert any(Path(held.encoding["source"]).iterdir())
    assert streammc.predict(written, store, seed=1).equals(prediction)
    assert streammc.open_run(held.encoding["source"]).equals(held)
    again = streammc.sample(
        store, model, path=held.encoding["source"], overwrite=True, **{**options, "seed": 2}
    )
    assert streammc.open_run(again.encoding["source"]).equals(again)
    assert not again.equals(held)
