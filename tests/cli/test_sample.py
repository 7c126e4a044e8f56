from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import snapshot, streammc

from streammc.trace.run_directory import RunDirectory

SAMPLE = ("sample", "store.zarr", "-o", "run", "--model", "logistic", "--chains", "2")
MADE = (*SAMPLE, "--seed", "1", "--warmup", "60")
"""The command that made the run of the fixture, but for its draws."""


def test_result_has_the_parts_of_the_design(run: Path) -> None:
    done = streammc(*MADE, "--draws", "60", "--json")
    assert 0 == done.code, done.err
    found = done.json
    labels = ["beta[Intercept]", "beta[x1]", "beta[x2]"]
    assert labels == list(found["parameters"]) == list(found["parameters_original"])
    assert {
        "mean",
        "sd",
        "mcse_mean",
        "ess_bulk",
        "ess_tail",
        "ess_sd",
        "r_hat",
        "q5",
        "median",
        "q95",
    } == {*found["parameters"]["beta[x1]"]}
    assert "audit" in found
    for name in (
        *("seconds", "warmup_seconds", "pass_seconds", "iterations", "rows_read", "bytes_read"),
        *("log_lik_variance_mean", "certainty_rows", "subsample_size", "n_blocks", "unit_rows"),
        *("deff", "remainder_kurtosis", "acceptance_rate", "subsample_acceptance_rate"),
        "laplace_gap",
    ):
        assert name in found["sampling"], name
    assert 120 == found["sampling"]["iterations"]


def test_a_finished_run_answers_again_and_changes_nothing(run: Path) -> None:
    words = (*MADE, "--draws", "60", "--json")
    first = streammc(*words)
    before = snapshot(run)
    again = streammc(*words)
    assert (0, first.out) == (again.code, again.out)
    assert "run has 60 draws per chain: nothing to do" in again.err
    fewer = streammc(*words[:-3], "--draws", "30", "--json")
    assert first.out == fewer.out
    assert "run has 60 draws per chain, 30 asked for: nothing to do" in fewer.err
    assert first.out == streammc("resume", "run", "--json").out
    assert first.out == streammc("diagnose", "run", "--json").out
    assert before == snapshot(run)


def test_a_run_without_its_summary_says_that_its_draws_are_there(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streammc.trace.run_directory import RunView

    def without_summary(view: RunView) -> dict[str, object]:
        return {name: value for name, value in view._attributes.items() if name != "summary"}

    monkeypatch.setattr(RunView, "attributes", property(without_summary))
    found = streammc("diagnose", "run", "--json")
    assert 0 == found.code, found.err
    assert (
        "all its 60 draws per chain, its summary is missing: resume it" in found.json["warnings"][0]
    )


def test_a_run_supplies_its_own_seed(run: Path) -> None:
    words = [word for word in MADE if word not in ("--seed", "1")]
    assert 1 == streammc(*words, "--draws", "60", "--json").json["seed"]


def test_a_new_seed_is_told_and_kept(store: Path) -> None:
    words = (*SAMPLE, "--draws", "20", "--warmup", "20", "--json")
    done = streammc(*words)
    assert f"seed {done.json['seed']}: new" in done.err
    assert done.out == streammc(*words).out
    assert done.json["seed"] == json.loads(Path("run/config.json").read_text())["seed"]


def test_settings_are_written_into_the_run(run: Path) -> None:
    kept = json.loads((run / "config.json").read_text())
    assert ("logistic", 60, 60, 2, 1) == tuple(
        kept[name] for name in ("model", "draws", "warmup", "chains", "seed")
    )
    assert Path(kept["store"]).is_absolute()


@pytest.mark.trust(43)
@pytest.mark.parametrize("extend", ["sample", "resume"])
def test_more_draws_extend_with_the_same_prefix(run: Path, extend: str) -> None:

    before = RunDirectory.open(run).draws_matrix()
    words = MADE if extend == "sample" else ("resume", "run")
    done = streammc(*words, "--draws", "100", "--json")
    assert 0 == done.code, done.err
    after = RunDirectory.open(run).draws_matrix()
    assert (2, 100, 3) == after.shape
    assert (before == after[:, :60]).all()
    assert 100 == json.loads((run / "config.json").read_text())["draws"]


@pytest.mark.trust(43)
@pytest.mark.parametrize(
    "change",
    [
        ("--seed", "2"),
        ("--warmup", "61"),
        ("--chains", "3"),
        ("--prior-scale", "3"),
        ("--sampler", "hmc"),
        ("--subsample-size", "50"),
        ("--step-size", "0.3"),
    ],
    ids=lambda change: change[0],
)
def test_another_job_does_not_touch_the_run(
    run: Path, change: tuple[str, str], record_property: Callable[[str, object], None]
) -> None:
    before = snapshot(run.parent)
    done = streammc(*MADE, "--draws", "60", "--quiet", *change)
    assert 78 == done.code
    assert 1 == len(done.err.splitlines())
    assert before == snapshot(run.parent)
    record_property("figure", f"other {change[0].lstrip('-')}: 78")


def test_threads_are_no_setting_of_a_run_and_change_no_draw(run: Path) -> None:
    other = ["other" if word == "run" else word for word in MADE]
    assert 0 == streammc(*other, "--draws", "60", "--threads", "1").code
    digest = RunDirectory.open(run).digest()
    assert digest == RunDirectory.open(run.parent / "other").digest()
    one, two = (
        json.loads((each / "config.json").read_text()) for each in (run, run.parent / "other")
    )
    assert {**one, "store": ""} == {**two, "store": ""}
    assert 2 == streammc(*other, "--threads", "0").code


def test_check_decides_the_exit_code(run: Path) -> None:
    words = (*MADE, "--draws", "60", "--json", "--check")
    good = streammc(*words, "rhat=9,ess=2")
    assert (0, True) == (good.code, good.json["check"]["passed"])
    bad = streammc(*words, "ess=100000")
    assert (1, False) == (bad.code, bad.json["check"]["passed"])
    assert 1 == streammc("diagnose", "run", "--check", "ess=100000").code


def test_dry_run_says_what_it_would_take_and_writes_nothing(store: Path) -> None:
    before = snapshot(store.parent)
    done = streammc(*SAMPLE, "--dry-run", "--json", "--quiet")
    assert 0 == done.code, done.err
    found: dict[str, Any] = done.json
    assert "hmc-ecs" == found["sampler"]
    assert found["subsample_size"] >= 30
    assert found["certainty_rows"] >= 0
    assert found["passes"] >= 1
    assert found["minutes"] > 0
    assert found["disk_bytes"] > 2 * 2000 * 3 * 8
    settings = {"dry_run", "sampler", "target", "temperature", "reason", "priors", "n_rows"}
    sizes = {"certainty_rows", "subsample_size", "n_blocks", "unit_rows"}
    sizes |= {"predicted_variance", "predicted_variance_bias"}
    times = {"passes", "pass_seconds", "seconds_per_iteration", "minutes", "disk_bytes"}
    assert settings | sizes | times == {*found}
    assert before == snapshot(store.parent)


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_dry_run_leaves_out_passes_already_made_and_counts_usable_cores(
    cores: int, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    made = streammc("summarize", store, "-o", "cv.zarr", "--model", "logistic", "--quiet")
    assert 0 == made.code
    words = (*SAMPLE, "--chains", "4", "--control-variates", "cv.zarr", "--dry-run", "--json")
    found = streammc(*words, "--quiet").json
    assert (0, 0.0) == (found["passes"], found["pass_seconds"])
    assert 0 < found["seconds_per_iteration"] < 0.05
    assert found["minutes"] == pytest.approx(
        found["seconds_per_iteration"] * (4 // cores) * 2000 / 60
    )


@pytest.mark.parametrize("sampler", ["hmc", "hmc-ecs"])
def test_samplers_take_their_options(store: Path, sampler: str) -> None:
    words = (*SAMPLE, "--draws", "20", "--warmup", "20", "--sampler", sampler, "--json")
    done = streammc(*words, "--step-size", "0.2", "--option", "jitter=0.1")
    assert (0, sampler) == (done.code, done.json["sampler"])
    assert 0.18 <= done.json["sampling"]["step_size"] <= 0.22  # jitter: up to a tenth


def test_hmc_ecs_is_refused_by_name_and_replaced_by_auto(store: Path) -> None:
    few = ("--rows", "80", "--dim", "20", "--seed", "1", "--quiet")
    assert 0 == streammc("simulate", "logistic", "few.zarr", *few).code
    words = ("sample", "few.zarr", "-o", "run", "--model", "logistic", "--quiet", "--json")
    before = snapshot(store.parent)
    refused = streammc(*words, "--sampler", "hmc-ecs")
    assert (65, "refused") == (refused.code, refused.json["error"]["code"])
    assert "use --sampler hmc" in refused.err
    assert before == snapshot(store.parent)
    done = streammc(*words, "--draws", "20", "--warmup", "20")
    assert (0, "hmc") == (done.code, done.json["sampler"])
    assert "because" in done.json["sampling"]["reason"]


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_options_of_a_subsample_refine_what_auto_takes(dry: tuple[str, ...], store: Path) -> None:
    words = ("--draws", "20", "--warmup", "20", "--subsample-size", "300", *dry, "--json")
    found = streammc(*SAMPLE, *words).json
    found = found if dry else found["sampling"]
    assert 300 == found["subsample_size"]
    taken = "hmc-ecs, which auto takes for these data whatever its subsample_size; "
    assert found["reason"].startswith(taken)


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_an_option_never_changes_what_auto_takes(dry: tuple[str, ...], store: Path) -> None:
    few = ("--rows", "1500", "--dim", "3", "--seed", "1", "--quiet")
    assert 0 == streammc("simulate", "logistic", "few.zarr", *few).code
    words = ("sample", "few.zarr", "-o", "r", "--model", "logistic", "--draws", "20", *dry)
    words = (*words, "--warmup", "20", "--chains", "2", "--seed", "1", "--json", "--quiet")
    given = ("--step-size", "0.5", "--option", "jitter=0.01")
    done = streammc(*words, *given)
    assert (0, "hmc") == (done.code, done.json["sampler"]), done.err
    if not dry:
        assert "exact" == done.json["sampling"]["target"]
        named = [word if word != "r" else "named" for word in (*words, *given)]
        assert 0 == streammc(*named, "--sampler", "hmc").code
        draws = (RunDirectory.open(name).draws_matrix() for name in ("r", "named"))
        np.testing.assert_array_equal(*draws)
        identity = RunDirectory.open("r").identity["sampler"]
        assert {"name": "auto", "step_size": 0.5, "jitter": 0.01} == identity
        assert 0 == streammc("resume", "r", "--draws", "30", "--quiet").code
    for option in (("--subsample-size", "100"), ("--option", "order=1")):
        refused = streammc(*words, "--overwrite", *option)
        assert (65, "refused") == (refused.code, refused.json["error"]["code"])
        assert "options of hmc, which auto takes for these data, found" in refused.err
    wrong = streammc(*words, "--option", "allow_high_variance=true")
    assert (2, True) == (wrong.code, "expected --sampler hmc-ecs with allow" in wrong.err)


def test_an_unknown_option_lists_those_that_exist(store: Path) -> None:
    done = streammc(*SAMPLE, "--sampler", "hmc", "--option", "zeal=1", "--quiet")
    assert 2 == done.code
    for name in ("zeal", "step_size", "trajectory_length", "jitter"):
        assert name in done.err


def test_an_option_given_twice_is_refused(store: Path) -> None:
    done = streammc(*SAMPLE, "--step-size", "0.1", "--option", "step_size=0.2", "--quiet")
    assert 2 == done.code
    assert "step_size" in done.err


def test_sample_uses_the_given_control_variates(store: Path) -> None:
    streammc("summarize", store, "--model", "logistic", "-o", "cv.zarr", "--quiet")
    words = (*SAMPLE, "--draws", "20", "--warmup", "20", "--seed", "1", "--json")
    done = streammc(*words, "--control-variates", "cv.zarr")
    assert 0 == done.code, done.err
    assert 78 == streammc(*words).code
    Path("cv.zarr").rename("moved.zarr")
    assert done.out == streammc("resume", "run", "--json").out


def test_a_run_whose_store_is_gone_says_so(run: Path) -> None:
    attributes = json.loads((run / "zarr.json").read_text())["attributes"]
    made = Path(attributes["store"])
    moved = made.with_name("elsewhere.zarr")
    made.rename(moved)
    try:
        done = streammc("resume", "run", "--draws", "100", "--quiet")
    finally:
        moved.rename(made)
    assert 66 == done.code
    assert str(made) in done.err


def printed_command(err: str) -> list[str]:
    """Return the words of the ``streammc sample`` in a message."""
    return shlex.split(err[err.index("streammc sample") :])[1:]


def test_the_command_of_the_message_continues_a_run_whose_store_has_moved(store: Path) -> None:
    options = ("--prior", "x1=normal(0, 1)", "--prior", "normal(0, 2)", "--sampler", "hmc-ecs")
    options += ("--option", "order=2", "--subsample-size", "300", "--step-size", "0.2")
    options += ("--temperature", "2.0", "--no-audit", "--draws", "40", "--seed", "0")
    words = [*SAMPLE, "--warmup", "40", *options]
    assert 0 == streammc(*words).code
    store.rename("my moved.zarr")
    gone = streammc("resume", "run", "--draws", "80", "--quiet")
    assert 66 == gone.code
    command = printed_command(gone.err)
    assert sorted(w.replace("store.zarr", "NEW_STORE") for w in words) == sorted(command)
    command[command.index("NEW_STORE")] = "my moved.zarr"
    again = streammc(*command, "--json")
    assert 0 == again.code, again.err
    assert "nothing to do" in again.err
    assert os.path.abspath("my moved.zarr") == again.json["store"]
    more = streammc("resume", "run", "--draws", "80", "--json")
    assert (0, 80) == (more.code, more.json["draws"]), more.err
    assert (
        os.path.abspath("my moved.zarr") == json.loads(Path("run/config.json").read_text())["store"]
    )


def test_another_store_at_the_place_of_a_runs_own_names_the_command(store: Path) -> None:
    assert 0 == streammc(*SAMPLE, "--draws", "20", "--warmup", "20", "--seed", "1").code
    store.rename("moved.zarr")
    words = ("--rows", "300", "--dim", "3", "--seed", "2")
    assert 0 == streammc("simulate", "logistic", "store.zarr", *words).code
    done = streammc("resume", "run", "--draws", "30", "--quiet")
    assert 78 == done.code
    Path("store.zarr").rename("another.zarr")
    command = [w.replace("NEW_STORE", "moved.zarr") for w in printed_command(done.err)]
    assert 0 == streammc(*command, "--draws", "30").code
    assert 0 == streammc("resume", "run", "--draws", "40").code


def test_audit_is_made_once_and_kept(store: Path) -> None:
    words = (*SAMPLE, "--draws", "40", "--warmup", "40", "--seed", "1", "--no-audit", "--json")
    assert streammc(*words).json["audit"] is None
    done = streammc("audit", "run", "--json")
    assert 0 == done.code, done.err
    assert {"beta[Intercept]", "beta[x1]", "beta[x2]"} == set(done.json["audit"]["parameters"])
    before = snapshot(Path("run"))
    again = streammc("audit", "run", "--json")
    assert done.out == again.out
    assert before == snapshot(Path("run"))
    assert done.json["audit"] == streammc("diagnose", "run", "--json").json["audit"]
    assert "largest correction" in streammc("audit", "run").out


def test_an_audit_keeps_the_warnings_of_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    rare, x = np.arange(3000) % 100 == 0, rng.normal(size=3000)
    y = (rng.random(3000) < 0.4) & ~rare
    lines = [f"{a:d},{b:d},{c},{2 * c}" for a, b, c in zip(y, rare, x, strict=True)]
    Path("t.csv").write_text("\n".join(["y,rare,x,twice", *lines]) + "\n")
    assert 0 == streammc("ingest", "t.csv", "s.zarr", "--response", "y", "--quiet").code
    words = ("sample", "s.zarr", "-o", "run", "--model", "logistic", "--sampler", "hmc-ecs")
    counts = ("--draws", "40", "--warmup", "40", "--chains", "1", "--seed", "1", "--no-audit")
    before = streammc(*words, *counts, "--json").json["warnings"]
    assert any("beta[rare]" in line and "running away" in line for line in before), before
    assert any("beta[twice]" in line and "collinear" in line for line in before), before
    assert 0 == streammc("audit", "run", "--quiet").code
    after = streammc("diagnose", "run", "--json").json
    assert after["audit"] is not None
    assert {line for line in before if not line.startswith("not audited")} <= {*after["warnings"]}


def test_audit_of_hmc_does_nothing(store: Path) -> None:
    words = (*SAMPLE, "--draws", "20", "--warmup", "20", "--sampler", "hmc", "--quiet")
    assert 0 == streammc(*words).code
    done = streammc("audit", "run", "--json")
    assert (0, None) == (done.code, done.json["audit"])


def test_the_text_shows_posterior_cost_and_place(run: Path) -> None:
    text = streammc(*MADE, "--draws", "60").out
    for word in ("beta[x1]", "mean", "90 % interval", "odds ratio", "verdict", "hmc", str(run)):
        assert word in text
    assert len(text.splitlines()) <= 25
    full = streammc(*MADE, "--draws", "60", "--verbose").out
    assert full == streammc("diagnose", run).out
    for word in ("scaled with the data", "seconds: draws", "inefficiency factor"):
        assert (word in text, word in full) == (False, True)


def test_coefficients_are_printed_before_the_audit(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streammc.runs import run_summary

    class Stopped(Exception):
        pass

    def audit(*_: object, **__: object) -> None:
        raise Stopped

    monkeypatch.setattr(run_summary, "run_audit", audit)
    words = (*SAMPLE, "--sampler", "hmc-ecs", "--audit", "--draws", "20", "--warmup", "20")
    for flags, printed in (((), True), (("--json", "--overwrite"), False)):
        stopped = streammc(*words, *flags)
        assert 70 == stopped.code
        assert printed == ("beta[x1]" in stopped.out)


def test_scores_and_recalibration_by_option_and_their_passes(store: Path) -> None:
    options = ("--option", "probabilities=scores", "--option", "recalibrate=20")
    words = ("--sampler", "hmc-ecs", *options, "--json")
    made = streammc("summarize", "store.zarr", "--model", "logistic", "-o", "cv.zarr", "--json")
    assert 0 == made.code, made.err
    passes = []
    for given in ((), ("--control-variates", "cv.zarr")):
        done = streammc(*SAMPLE, *words, *given, "--dry-run")
        assert 0 == done.code, done.err
        passes.append(done.json["passes"])
    assert [3, 2] == passes  # around a subset's mode (not where given), around the mean, scores
    done = streammc(*SAMPLE, *words, "--draws", "20", "--warmup", "20")
    assert 0 == done.code, done.err
    facts = done.json["sampling"]
    assert 3 == facts["passes"]
    assert {"first", "second", "iterations"} < set(facts["recalibration"])
    assert "drawn by their scores" in facts["reason"]
    wrong = streammc(*SAMPLE, "--sampler", "hmc-ecs", "--option", "probabilities=best")
    assert wrong.code == 2
    assert "must be one of uniform, scores" in wrong.err
