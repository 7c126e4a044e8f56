"""A model of the user's own from the command line: only with --allow-code."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from command_line import streammc

from streammc import registry
from streammc.errors import ConfigError

CODE = """
import pathlib
import numpy as np
from streammc.models import user

pathlib.Path({canary!r}).write_text("ran")


def build(prior=None, power=1.0):
    def log_lik(eta, y):
        return power * (y * eta[0] - np.logaddexp(0, eta[0]))

    def gradient(eta, y):
        return power * (y - 1 / (1 + np.exp(-eta)))

    def hessian(eta, y):
        p = 1 / (1 + np.exp(-eta))
        return -power * (p * (1 - p))[None]

    return user("own", log_lik=log_lik, gradient=gradient, hessian=hessian, prior=prior)


NOTHING = 3
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_model", raising=False)
    canary = tmp_path / "canary"
    (tmp_path / "own_model.py").write_text(CODE.format(canary=str(canary)))
    assert (
        streammc("simulate", "logistic", "s", "--rows", "500", "--dim", "3", "--seed", "1")[0] == 0
    )
    return tmp_path


SAMPLE = ("sample", "s", "-o", "r", "--model", "own_model:build", "--draws", "60", "--warmup", "60")
SMALL = (*SAMPLE, "--chains", "2", "--seed", "3", "--sampler", "hmc", "--json")


def test_code_is_not_run_without_permission(place):
    for words in (SMALL, ("summarize", "s", "--model", "own_model:build")):
        result = streammc(*words)
        assert result.code == 2
        assert "--allow-code" in result.err
        assert result.err.count("\n") == 1
    assert not (place / "canary").exists()
    assert not (place / "r").exists()


def test_allowed_model_is_sampled_resumed_and_extended(place):
    result = streammc(*SMALL, "--allow-code")
    assert result.code == 0, result.err
    assert result.json["model"] == "own"
    refused = streammc("resume", "r", "--draws", "90")
    assert refused.code == 2
    assert "--allow-code" in refused.err
    more = streammc("resume", "r", "--draws", "90", "--allow-code", "--json")
    assert more.code == 0, more.err
    assert more.json["draws"] == 90


@pytest.mark.trust(43, caught="one changed line in the source of a model")
def test_changed_code_is_another_model(place, record_property):
    assert streammc(*SMALL, "--allow-code").code == 0
    path = place / "own_model.py"
    path.write_text(path.read_text().replace("np.logaddexp(0, eta[0])", "np.log1p(np.exp(eta[0]))"))
    del sys.modules["own_model"]
    import linecache

    linecache.clearcache()
    changed = streammc("resume", "r", "--draws", "90", "--allow-code")
    assert changed.code == 78, changed.err
    assert "own_model:build" in changed.err
    record_property("figure", "other source of the model: 78")


def test_changed_module_that_the_model_imports_is_another_model(place):
    path = place / "own_model.py"
    path.write_text("import rates\n" + path.read_text().replace("power * (y *", "rates.P * (y *"))
    (place / "rates.py").write_text("P = 1.0\n")
    assert streammc(*SMALL, "--allow-code").code == 0
    (place / "rates.py").write_text("P = 1.5\n")
    for name in ("own_model", "rates"):
        del sys.modules[name]
    changed = streammc("resume", "r", "--draws", "90", "--allow-code")
    del sys.modules["rates"]
    assert changed.code == 78, changed.err


def test_option_reaches_the_model_in_summarize_and_sample(place):
    options = ("--model", "own_model:build", "--allow-code", "--option", "power=2", "--json")
    doubled = streammc("summarize", "s", "-o", "cv", *options)
    assert doubled.code == 0, doubled.err
    plain = streammc("summarize", "s", "-o", "cv1", *options[:3], "--json")
    assert doubled.json["log_lik"] < 1.8 * plain.json["log_lik"]
    wrong = streammc("summarize", "s", "-o", "cv2", *options[:3], "--option", "nonsense=1")
    assert wrong.code == 2
    assert "nonsense" in wrong.err
    used = streammc(*SMALL, "--allow-code", "--option", "power=2", "--control-variates", "cv")
    assert used.code == 0, used.err


@pytest.mark.parametrize(
    "address", ["own_model:missing", "own_model:NOTHING", "no_such_module:build", ":build", "a:"]
)
def test_model_address_that_leads_nowhere_is_refused_in_one_line(place, address):
    result = streammc("summarize", "s", "--model", address, "--allow-code")
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert "Traceback" not in result.err


def console_script(place, *words, cwd, **env):
    """Run ``streammc`` as it is installed: its folder, not the working one, is on the path."""
    (place / "bin").mkdir(exist_ok=True)
    script = place / "bin" / "streammc"
    script.write_text("import sys\nfrom streammc.cli import main\nsys.exit(main())\n")
    return subprocess.run(
        [sys.executable, str(script), *map(str, words)],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_a_module_is_found_in_the_working_directory_or_in_pythonpath(place):
    words = ("summarize", place / "s", "--model", "own_model:build", "--json", "--quiet")
    here = console_script(place, *words, "--allow-code", cwd=place)
    assert here.returncode == 0, here.stderr
    (place / "elsewhere").mkdir()
    away = console_script(place, *words, "--allow-code", cwd=place / "elsewhere")
    assert away.returncode == 2
    assert "in the folder that holds the package or module, or put that folder into PYTHONPATH" in (
        away.stderr
    )
    named = console_script(
        place, *words, "--allow-code", cwd=place / "elsewhere", PYTHONPATH=str(place)
    )
    assert named.returncode == 0, named.stderr
    assert json.loads(here.stdout)["log_lik"] == json.loads(named.stdout)["log_lik"]


def test_a_safe_path_leaves_the_working_directory_out(place):
    words = ("summarize", place / "s", "--model", "own_model:build", "--quiet", "--allow-code")
    safe = console_script(place, *words, cwd=place, PYTHONSAFEPATH="1")
    assert safe.returncode == 2
    assert "PYTHONPATH" in safe.stderr
    assert not (place / "canary").exists()


def test_installed_package_adds_a_model_by_entry_point(monkeypatch):
    class Entry:
        def load(self):
            return lambda prior=None: "built"

    def found(*, group, name):
        assert group == "streammc.models"
        return [Entry()] if name == "extra" else []

    monkeypatch.setattr(importlib.metadata, "entry_points", found)
    assert registry.model("extra")() == "built"
    with pytest.raises(ConfigError, match="unknown model 'extrra'"):
        registry.model("extrra")
    with pytest.raises(ConfigError, match=r"or your own, package\.module:build"):
        registry.model("waiting")


def test_gaussian_mean_with_a_covariance_from_the_command_line(place):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    np.savetxt("t.csv", X, delimiter=",", header="a,b", comments="")
    made = streammc("ingest", "t.csv", "g", "--no-intercept", "--no-standardize", "--quiet")
    assert made.code == 0, made.err
    result = streammc(
        *("sample", "g", "-o", "gr", "--model", "gaussian-mean", "--draws", "100", "--seed", "1"),
        *("--option", "covariance=[[1, 0], [0, 1]]", "--json"),
    )
    assert result.code == 0, result.err
    assert list(json.loads(result.out)["parameters"]) == ["mu[a]", "mu[b]"]


def test_predictions_need_permission_and_a_mean(place):
    assert streammc(*SMALL, "--allow-code").code == 0
    predict = ("predict", "r", "s", "-o", "p", "--quiet")
    for words, code, culprit in (
        (predict, 2, "--allow-code"),
        ((*predict, "--allow-code"), 65, "mean=f"),
    ):
        result = streammc(*words)
        assert result.code == code, result.err
        assert result.err.count("\n") == 1
        assert culprit in result.err
        assert not (place / "p").exists()
    path = place / "own_model.py"
    path.write_text(path.read_text().replace("prior=prior)", "prior=prior, mean=chance)"))
    path.write_text(
        path.read_text() + "\n\ndef chance(eta):\n    return 1 / (1 + np.exp(-eta[0]))\n"
    )
    del sys.modules["own_model"]
    import linecache

    linecache.clearcache()
    done = streammc(*predict, "--allow-code", "--json", "--quiet")
    assert done.code == 0, done.err
    assert done.json["rows"] == 500
    assert done.json["auc"] is None  # the model does not say that responses are 0 and 1
