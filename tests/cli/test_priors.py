"""``--prior`` and ``[prior]``, from the line to the run and back."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import snapshot, streammc

MODEL = ("--model", "logistic", "--quiet")
FEW = ("--warmup", "60", "--chains", "1", "--seed", "1")
RUN = ("sample", "store.zarr", "-o", "run", *MODEL, *FEW)
TIGHT = "beta[x1]=normal(0, 0.01)"
NORMAL_10 = {"family": "normal", "scale": 10.0, "location": 0.0}


def mode(output: str, *words: str) -> Any:
    """Return what ``summarize`` prints."""
    done = streammc("summarize", "store.zarr", *MODEL, "-o", output, "--json", *words)
    assert 0 == done.code, done.err
    return done.json


def recorded(*words: str) -> Any:
    """Return the prior in the identity of a short run."""
    from streammc.trace.run_directory import RunDirectory

    done = streammc(*RUN, "--draws", "20", "--no-audit", *words)
    assert 0 == done.code, done.err
    return RunDirectory.open("run", verify=False).identity["model"]["prior"]


def test_a_prior_of_one_coefficient_reaches_the_posterior(store: Path) -> None:
    plain, tight = mode("a"), mode("b", "--prior", TIGHT)
    assert abs(tight["theta_star"]["beta[x1]"]) < 0.1 * abs(plain["theta_star"]["beta[x1]"])
    assert 0.01 == pytest.approx(tight["laplace_sd"]["beta[x1]"], rel=0.1)
    assert abs(tight["theta_star"]["beta[x2]"]) > 0.5 * abs(plain["theta_star"]["beta[x2]"])


def test_a_prior_is_part_of_the_identity_and_of_the_settings(store: Path) -> None:
    found = recorded("--prior", "x*=laplace(scale=0.5)", "--prior", "x1=student_t(3, 0, 1)")
    assert {
        "family": "by_name",
        "priors": {
            "beta[Intercept]": found["priors"]["beta[Intercept]"],
            "x*": {"family": "laplace", "location": 0.0, "scale": 0.5},
            "x1": {"family": "student_t", "df": 3.0, "location": 0.0, "scale": 1.0},
        },
        "scaled": ["beta[Intercept]"],
        "joint_rule": 1,
    } == found
    kept = json.loads(Path("run/config.json").read_text())
    assert {"x*": "laplace(scale=0.5)", "x1": "student_t(3, 0, 1)"} == kept["prior"]
    assert kept["prior_scale"] is None


@pytest.mark.parametrize(
    ("words", "rest"),
    [
        (("--prior-scale", "3"), {**NORMAL_10, "scale": 3.0}),
        (("--prior", "laplace(0, 2)"), {"family": "laplace", "location": 0.0, "scale": 2.0}),
        (("--prior", "*=flat"), {"family": "flat"}),
    ],
)
def test_coefficients_without_a_prior_of_their_own_have_the_common_prior(
    store: Path, words: Any, rest: Any
) -> None:
    found = recorded("--prior", "x1=uniform(-9, 9)", *words)
    assert rest == found["priors"]["*"]


def test_common_normal_prior_and_prior_scale_are_the_same_job(store: Path) -> None:
    assert {**NORMAL_10, "scale": 3.0} == recorded("--prior", "normal(0, 3)")
    done = streammc(*RUN, "--draws", "20", "--no-audit", "--prior-scale", "3")
    assert 0 == done.code, done.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[prior]\n'beta[x1]' = 'normal(0, 0.01)'\n", {"beta[x1]": "normal(0, 0.01)"}),
        ("[sample.prior]\n'x*' = 'laplace(0, 1)'\n", {"x*": "laplace(0, 1)"}),
        ("prior = 'normal(0, 2)'\n", {"*": "normal(0, 2)"}),
        ("prior = ['x1=flat', 'normal(scale=2)']\n", {"x1": "flat", "*": "normal(scale=2)"}),
    ],
)
def test_priors_come_from_the_file(store: Path, text: str, expected: Any) -> None:
    Path("job.toml").write_text(text)
    recorded("--config", "job.toml")
    assert expected == json.loads(Path("run/config.json").read_text())["prior"]


def test_priors_come_from_the_environment(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMMC_PRIOR", "x1=normal(0, 1);laplace(0, 2)")
    assert {"*", "x1"} == set(recorded()["priors"])


@pytest.mark.parametrize("item", [TIGHT, "beta[*1]=laplace(0, 0.01)", "uniform(-0.5, 20)"])
def test_a_run_with_priors_is_resumed_diagnosed_and_audited(store: Path, item: str) -> None:
    asked = (*RUN, "--prior", item, "--draws")
    done = streammc(*asked, "60", "--json")
    assert 0 == done.code, done.err
    assert done.json["parameters"] == streammc("diagnose", "run", "--json").json["parameters"]
    audit = streammc("audit", "run", "--json")
    assert 0 == audit.code, audit.err
    longer = streammc("resume", "run", "--draws", "100", "--json")
    assert 0 == longer.code, longer.err
    again = streammc(*asked, "100", "--json")
    assert longer.json["parameters"] == again.json["parameters"]
    before = snapshot(Path("run"))
    assert 78 == streammc(*RUN, "--draws", "100").code
    assert before == snapshot(Path("run"))


@pytest.mark.parametrize(
    ("words", "culprit"),
    [
        (("--prior", "beta[x9]=flat"), "choose from 'beta[Intercept]', 'beta[x1]', 'beta[x2]'"),
        (("--prior", "y*=flat"), "which fits none"),
        (("--prior", "x1=flat", "--prior", "beta[x1]=flat"), "twice"),
        (("--prior", "x1=flat", "--prior", "x1=flat"), "once"),
        (("--prior", "flat", "--prior", "*=flat"), "once"),
        (("--prior", "x1=half_cauchy(2)"), "'beta[x1]' must be a density on the whole line"),
        (("--prior", "x1=normal(0, -1)"), "--prior"),
        (("--prior", "x1=nrmal(0, 1)"), "did you mean 'normal'?"),
        (("--prior", "x1"), "--prior"),
        (("--prior", "normal"), "expected normal(location, scale), found 'normal'"),
        (("--prior", "beta[C(origin)*]=flat"), "none: choose from 'beta[Intercept]', "),
        (("--prior", "x1=__import__('os').system('true')"), "--prior"),
    ],
)
def test_a_wrong_prior_is_refused_before_any_work(store: Path, words: Any, culprit: str) -> None:
    before = snapshot(store.parent)
    done = streammc(*RUN, "--draws", "60", *words)
    assert 2 == done.code
    assert culprit in done.err
    assert 1 == len(done.err.splitlines())
    assert before == snapshot(store.parent)


def test_a_wrong_prior_in_the_file_is_refused(store: Path) -> None:
    Path("job.toml").write_text("[prior]\nx1 = 3\n")
    done = streammc(*RUN, "--draws", "60", "--config", "job.toml")
    assert (2, 1) == (done.code, len(done.err.splitlines()))
    assert "--prior" in done.err


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The words that sample 400 overdispersed counts with a shape phi."""
    import numpy as np

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    x = rng.normal(size=400)
    y = rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(0.4 + 0.5 * x)))
    np.savetxt("t.csv", np.c_[y, x], fmt="%.8g", delimiter=",", header="y,x", comments="")
    done = streammc("ingest", "t.csv", "t.zarr", "--response", "y", "--seed", "1", "--quiet")
    assert 0 == done.code, done.err
    return ("sample", "t.zarr", "-o", "run", "--model", "negative-binomial", "--quiet", *FEW)


def test_a_scale_parameter_takes_its_own_prior(counts: tuple[str, ...]) -> None:
    words = (*counts, "--prior", "phi=uniform(0, 0.5)", "--prior", "normal(0, 1)", "--draws")
    done = streammc(*words, "60", "--json")
    assert 0 == done.code, done.err
    assert 0.4 < done.json["parameters"]["phi"]["mean"] < 0.5
    longer = streammc("resume", "run", "--draws", "100", "--json")
    assert 0 == longer.code, longer.err
    assert longer.json["parameters"] == streammc(*words, "100", "--json").json["parameters"]


@pytest.mark.parametrize(
    ("item", "culprit"),
    [
        ("phi=flat", "'phi' must be proper, found flat"),
        ("phi=normal(0, 1)", "'phi' must be a density of a positive number, found normal"),
        ("p*=laplace(0, 1)", "'phi' must be a density of a positive number, found laplace"),
        ("phi=uniform(-1, 2)", "'phi'"),
        ("half_normal(1)", "'beta[Intercept]' must be a density on the whole line"),
    ],
)
def test_a_prior_that_does_not_fit_a_scale_is_refused(
    counts: tuple[str, ...], item: str, culprit: str
) -> None:
    done = streammc(*counts, "--draws", "60", "--prior", item)
    assert (2, 1) == (done.code, len(done.err.splitlines()))
    assert culprit in done.err
    assert not Path("run").exists()


def test_defaults_are_printed_recorded_and_one_flag_from_fixed_ones(store: Path) -> None:
    words = ("sample", "store.zarr", "-o", "run", *MODEL[:2], *FEW, "--draws", "20", "--no-audit")
    dry = streammc(*words, "--dry-run", "--json")
    assert 0 == dry.code, dry.err
    done = streammc(*words, "--verbose")
    assert 0 == done.code, done.err
    texts = dry.json["priors"]["parameters"]
    line = f"scaled with the data, jointly normal: beta[Intercept] {texts['beta[Intercept]']}, "
    assert line in done.err
    assert line in done.out
    assert "fix them with --prior or --prior-scale" in done.out
    kept = json.loads(Path("run/config.json").read_text())
    assert (kept["prior"], kept["prior_scale"]) == ({}, None)
    info = streammc("diagnose", "run", "--json").json
    assert dry.json["priors"] == info["priors"]
    assert list(texts) == info["priors"]["scaled_with_data"]
    longer = streammc("resume", "run", "--draws", "40", "--json")
    assert dry.json["priors"] == longer.json["priors"]
    assert longer.json == {**streammc(*words, "--draws", "40", "--json").json}
    assert 78 == streammc(*words, "--draws", "40", "--prior-scale", "10").code
    fixed = streammc(*words, "--dry-run", "--json", "--prior-scale", "10").json["priors"]
    assert [] == fixed["scaled_with_data"]
    assert {"normal(0, 10)"} == set(fixed["parameters"].values())


def test_given_priors_are_printed_beside_the_defaults(store: Path) -> None:
    words = [word for word in RUN if word != "--quiet"]
    done = streammc(
        *words, "--draws", "20", "--no-audit", "--dry-run", "--prior", "x1=normal(0, 3)"
    )
    assert 0 == done.code, done.err
    assert "priors: beta[x1] normal(0, 3)" in done.err
    (shown,) = [line for line in done.out.splitlines() if line.startswith("priors ")]
    assert "  beta[x1] normal(0, 3); default priors, scaled" in shown
    assert "default priors, scaled with the data, jointly normal: beta[Intercept] " in done.err


def test_priors_of_a_run_that_differ_are_named_by_parameter(store: Path) -> None:
    recorded("--prior", "normal(0, 3)")
    found = streammc(*RUN, "--draws", "20", "--prior", "x1=normal(0, 2)", "--prior", "normal(0, 3)")
    assert 78 == found.code
    assert (
        "found another one: prior of beta[x1] is normal(0, 3) in the run, normal(0, 2) asked for: "
        in found.err
    )
    assert "family" not in found.err
    other = streammc(*RUN, "--draws", "20", "--prior", "laplace(0, 1)", "--warmup", "70")
    assert 78 == other.code
    assert "warmup is 60, asked for 70; prior of beta[" in other.err


@pytest.mark.parametrize(
    ("first", "then", "shown"),
    [
        (
            (),
            ("--prior", "x1=normal(0, 3)"),
            r"is normal\(0, [0-9.]+\) in the run, normal\(0, 3\) ask",
        ),
        (("--prior", "x1=flat"), (), r"is flat\(\) in the run, normal\(0, [0-9.]+\) asked for"),
        (
            ("--prior", "x1=flat"),
            ("--prior", "x*=flat"),
            r"x2\] is normal\(0, .* flat\(\) asked for",
        ),
    ],
)
def test_a_prior_given_or_left_out_later_is_named(
    store: Path, first: Any, then: Any, shown: str
) -> None:
    recorded(*first)
    found = streammc(*RUN, "--draws", "20", *then)
    assert 78 == found.code
    assert re.search(shown, found.err), found.err


@pytest.mark.parametrize("command", ["sample", "summarize"])
def test_help_says_that_default_priors_scale_with_the_data(command: str) -> None:
    text = " ".join(streammc(command, "--help").out.split())
    assert "--prior leaves, on the store's scale. [default: (priors" in text
    assert "that scale with the data)" in text
