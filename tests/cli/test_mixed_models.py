"""Tables with groups through the command line: what cannot be right is refused in one line."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import Result, snapshot, streammc

from streammc import control_variates, from_arrays, models, priors
from streammc.errors import ConfigError, ModelError
from streammc.likelihood.data_views import by_group
from streammc.models.responses import response_check
from streammc.protocols import PassTask

QUIET = ("--seed", "1", "--quiet")
SHORT = ("--draws", "60", "--warmup", "60", "--chains", "2", *QUIET)


def write_table(
    path: Path, sizes: np.ndarray, kind: str = "logistic", bad: float | None = None
) -> None:
    """Write a table y, x, g with groups of these sizes; ``bad``: the response of row 100."""
    rng = np.random.default_rng(1)
    g = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(size=len(g))
    eta = 0.3 + 0.5 * x + rng.normal(size=len(sizes))[g]
    if kind == "logistic":
        y = (rng.random(len(g)) < 1 / (1 + np.exp(-eta))).astype(float)
    else:
        y = eta + rng.normal(size=len(g)) if kind == "gaussian" else rng.poisson(np.exp(eta))
    if bad is not None:
        y[100] = bad
    rows = [f"{a:.6g},{b:.6g},c{c}" for a, b, c in zip(y, x, g, strict=True)]
    path.write_text("\n".join(["y,x,g", *rows]) + "\n")


def ingest(folder: Path, sizes: np.ndarray, kind: str = "logistic", **given: float) -> Path:
    """Return a store with a random intercept of g."""
    write_table(folder / "t.csv", sizes, kind, **given)
    words = ("--formula", "y ~ x + (1 | g)", "--quiet")
    done = streammc("ingest", folder / "t.csv", folder / "s.zarr", *words)
    assert done.code == 0, done.err
    return folder / "s.zarr"


def refused(folder: Path, code: int, *words: str | Path) -> str:
    """Return the one line of a command that is refused and writes nothing."""
    before = snapshot(folder)
    done: Result = streammc(*words)
    assert done.code == code, done.err
    assert done.out == ""
    lines = [line for line in done.err.splitlines() if line.startswith("streammc: ")]
    assert len(lines) == 1, done.err
    assert snapshot(folder) == before
    return lines[0]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with s.zarr, 60 groups of 8 rows, and a finished run of a mixed model."""
    folder = tmp_path_factory.mktemp("mixed")
    store = ingest(folder, np.full(60, 8), "gaussian")
    done = streammc("sample", store, "-o", folder / "run", "--model", "gaussian", *SHORT)
    assert done.code == 0, done.err
    return folder


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("logistic", "one trial a group says nothing about tau[g]"),
        ("probit", "one trial a group says nothing about tau[g]"),
        ("gaussian", "only sigma^2 + tau[g]^2 is identified"),
    ],
)
@pytest.mark.parametrize("command", ["sample", "summarize"])
def test_groups_of_one_row_that_do_not_identify_tau_are_refused(tmp_path, model, reason, command):
    kind = "gaussian" if model == "gaussian" else "logistic"
    store = ingest(tmp_path, np.ones(120, int), kind)
    words = (command, store, "-o", tmp_path / "out", "--model", model)
    line = refused(tmp_path, 65, *words, *(QUIET if command == "sample" else ()))
    assert reason in line
    assert "120 groups of one row each" in line


def test_groups_of_one_row_are_sampled_where_they_identify_tau():
    rng = np.random.default_rng(2)
    X, g, ones = np.ones((50, 1)), np.arange(50), np.ones(50)
    counts = from_arrays(X, rng.poisson(3.0, 50), groups=g)
    assert by_group(counts, models.poisson())[0].n_rows == 50
    twice = from_arrays(X, (rng.random(50) < 0.5) * 1.0, weight=2 * ones, groups=g)
    assert by_group(twice, models.logistic())[0].n_rows == 50
    with pytest.raises(ModelError, match="one trial a group"):
        by_group(from_arrays(X, ones, weight=ones, groups=g), models.logistic())


def test_one_group_is_refused(tmp_path):
    write_table(tmp_path / "t.csv", np.array([40]))
    words = ("ingest", tmp_path / "t.csv", tmp_path / "s.zarr", "--formula", "y ~ x + (1 | g)")
    assert "at least 2 groups in column 'g'" in refused(tmp_path, 65, *words)


def test_every_row_a_group_of_counts_is_sampled(tmp_path):
    store = ingest(tmp_path, np.ones(60, int), "poisson")
    assert "60 groups, the largest of 1 row\n" in streammc("info", store).out
    run = ("sample", store, "-o", tmp_path / "run", "--model", "poisson", "--sampler", "hmc")
    done = streammc(*run, *SHORT, "--json")
    assert done.code == 0, done.err
    assert done.json["parameters"]["tau[g]"]["mean"] > 0.1


def test_a_level_without_rows_is_no_group(tmp_path):
    rng = np.random.default_rng(1)
    levels = pd.Categorical([f"c{k % 4}" for k in range(40)], [f"c{k}" for k in range(9)])
    table = pd.DataFrame({"y": rng.integers(0, 2, 40), "x": rng.normal(size=40), "g": levels})
    table.to_parquet(tmp_path / "t.parquet")
    words = ("--formula", "y ~ x + (1 | g)", "--quiet")
    done = streammc("ingest", tmp_path / "t.parquet", tmp_path / "s.zarr", *words)
    assert done.code == 0, done.err
    assert "4 groups, the largest of 10 rows" in streammc("info", tmp_path / "s.zarr").out
    only = table.assign(g=pd.Categorical(["c0"] * 40, [f"c{k}" for k in range(9)]))
    only.to_parquet(tmp_path / "one.parquet")
    line = refused(tmp_path, 65, "ingest", tmp_path / "one.parquet", tmp_path / "o.zarr", *words)
    assert "at least 2 groups in column 'g', found 1" in line


LABELS = {
    "missing text": (["a", None], "missing group labels in 1 row, first in data row 2 of"),
    "missing number": ([1.0, float("nan")], "missing group labels in 1 row, first in data row 2"),
    "fractions": ([1.5, 2.0], "unusable group labels"),
    "10 MB": (["a", 10_000_000 * "x"], "unusable group labels"),
}


@pytest.mark.parametrize("case", LABELS)
@pytest.mark.parametrize("how", ["formula", "option"])
def test_labels_that_cannot_be_used_are_refused(tmp_path, case, how):
    labels, expected = LABELS[case]
    table = pd.DataFrame({"y": [0, 1] * 20, "x": np.sin(np.arange(40)), "g": labels[:1] * 40})
    table.loc[1, "g"] = labels[1]
    table.to_parquet(tmp_path / "t.parquet")
    words = {
        "formula": ("--formula", "y ~ x + (1 | g)"),
        "option": ("--response", "y", "--group", "g"),
    }
    ingest_it = ("ingest", tmp_path / "t.parquet", tmp_path / "s.zarr", *words[how], "--quiet")
    line = refused(tmp_path, 65, *ingest_it)
    assert expected in line
    assert len(line) < 500


def test_a_label_of_10_mb_in_a_csv_file_or_as_a_name_is_refused(tmp_path, made):
    (tmp_path / "t.csv").write_text(f"y,x,g\n1,2,a\n0,1,{10_000_000 * 'x'}\n")
    words = ("ingest", tmp_path / "t.csv", tmp_path / "s.zarr", "--formula", "y ~ x + (1 | g)")
    assert "lines below 1 MB" in refused(tmp_path, 65, *words)
    words = ("effects", made / "run", "-o", tmp_path / "e.zarr", "--quiet", "--group")
    line = refused(tmp_path, 2, *words, 100_000 * "x")
    assert len(line) < 400


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("--formula", "y ~ x + (1 | y)"), 65, "'y' in the formula and as group: use it once"),
        (("--formula", "y ~ x + C(g) + (1 | g)"), 65, "effects or as columns, found both"),
        (("--response", "y", "--features", "x", "--group", "x"), 2, "'x' as group and again as a"),
        (("--response", "y", "--features", "x", "--group", "y"), 2, "'y' as response and group"),
    ],
)
def test_a_group_with_another_role_is_refused(tmp_path, words, code, expected):
    write_table(tmp_path / "t.csv", np.full(20, 4))
    line = refused(tmp_path, code, "ingest", tmp_path / "t.csv", tmp_path / "s.zarr", *words)
    assert expected in line


def separated(folder: Path, kind: str) -> Path:
    """Return a store of 20 groups of 10 rows, of one response each, or told by x."""
    rng = np.random.default_rng(1)
    g, x = np.arange(200) // 10, rng.normal(size=200)
    y = {"of one response each": g % 2, "by x": x > 0, "by x within groups": x > 0.5 * (g % 5 - 2)}
    rows = [f"{int(a)},{b:.6g},c{c}" for a, b, c in zip(y[kind], x, g, strict=True)]
    (folder / "t.csv").write_text("\n".join(["y,x,g", *rows]) + "\n")
    words = ("--formula", "y ~ x + (1 | g)", "--quiet")
    assert streammc("ingest", folder / "t.csv", folder / "s.zarr", *words).code == 0
    return folder / "s.zarr"


def test_groups_of_one_response_each_have_panels_and_a_tau_of_its_prior(tmp_path):
    """No number of nodes around one mode integrates half a normal density that is cut off."""
    store = separated(tmp_path, "of one response each")
    run = ("sample", store, "-o", tmp_path / "run", "--model", "logistic", "--sampler", "hmc")
    line = refused(tmp_path, 65, *run, *SHORT, "--option", "nodes=61")
    assert "error of the quadrature over the effects of g" in line
    assert "with 61 nodes: use as many as are needed, --option nodes=0" in line
    done = streammc(*run, *SHORT)
    assert done.code == 0, done.err
    assert "the default prior decides about tau[g]" in done.err


@pytest.mark.parametrize("kind", ["by x", "by x within groups"])
def test_separated_groups_have_a_proper_posterior(tmp_path, kind):
    """The default priors make it so; the slope is then far out, and finite."""
    store = separated(tmp_path, kind)
    run = ("sample", store, "-o", tmp_path / "run", "--model", "logistic", "--sampler", "hmc")
    done = streammc(*run, *SHORT, "--json")
    assert done.code == 0, done.err
    found = done.json["parameters"]
    assert 5 < found["beta[x]"]["mean"] < 50
    assert 0 < found["tau[g]"]["mean"] < 50


def test_a_tau_that_its_prior_holds_at_zero_is_said_to_be_that_of_the_prior(made, tmp_path):
    words = ("sample", made / "s.zarr", "-o", tmp_path / "run", "--model", "gaussian", *SHORT)
    done = streammc(*words, "--sampler", "hmc", "--prior", "tau[g]=half_normal(1e-9)", "--json")
    assert done.code == 0, done.err
    assert 0 < done.json["parameters"]["tau[g]"]["mean"] < 3e-9
    assert any("the prior alone decides about tau[g]" in each for each in done.json["warnings"])


@pytest.mark.parametrize("sampler", ["auto", "hmc", "mh"])
@pytest.mark.parametrize(("model", "value"), [("logistic", 7.0), ("poisson", -3.0)])
def test_an_invalid_response_is_found_in_its_row_of_the_table(tmp_path, model, value, sampler):
    store = ingest(tmp_path, np.full(60, 8), model, bad=value)
    words = ("sample", store, "-o", tmp_path / "run", "--model", model, "--sampler", sampler)
    line = refused(tmp_path, 65, *words, *QUIET)
    assert f"found {value:g} in the row with row_id 100" in line


def test_a_sampler_without_a_pass_checks_the_responses_of_groups():
    y = np.zeros(40)
    y[17] = 3.0
    data, model = by_group(
        from_arrays(np.ones((40, 1)), y, groups=np.arange(40) // 4), models.logistic()
    )
    block = next(iter(_blocks(data)))
    with pytest.raises(ModelError, match="found 3"):
        response_check(data, model)(block.X, block.y, block.weight)


def _blocks(data):
    class Blocks(PassTask):
        def map(self, block):
            return [block]

        def combine(self, left, right):
            return left + right

    return data.reduce(Blocks())


def test_a_store_without_a_response_is_refused(tmp_path):
    write_table(tmp_path / "t.csv", np.full(20, 4))
    words = ("--features", "x", "--group", "g", "--quiet")
    assert streammc("ingest", tmp_path / "t.csv", tmp_path / "s.zarr", *words).code == 0
    words = ("sample", tmp_path / "s.zarr", "-o", tmp_path / "run", "--model", "logistic")
    assert "expected a response in the data" in refused(tmp_path, 65, *words, *QUIET)


@pytest.mark.parametrize(
    "model", ["network", "gaussian-mixture", "gaussian-process", "gaussian-mean"]
)
def test_a_model_without_a_mixed_model_is_refused(made, model):
    words = ("sample", made / "s.zarr", "-o", made / "other", "--model", model, *QUIET)
    line = refused(made, 2, *words)
    assert f"for the groups of 'g', found {model!r}" in line


def test_a_model_of_ones_own_with_a_registered_name_is_refused():
    own = models.user(
        "poisson",
        log_lik=lambda eta, y: -eta[0] - y * np.exp(-eta[0]),
        gradient=lambda eta, y: np.array([-1 + y * np.exp(-eta[0])]),
        hessian=lambda eta, y: np.array([[-y * np.exp(-eta[0])]]),
    )
    data = from_arrays(np.ones((40, 1)), np.ones(40), groups=np.arange(40) // 4)
    with pytest.raises(ConfigError, match="another model of the name 'poisson'"):
        by_group(data, own)


@pytest.mark.parametrize(
    ("prior", "found"),
    [
        ("tau[g]=flat", "must be proper, found flat"),
        ("tau[g]=half_normal(0)", "a finite number above 0, found 0.0"),
        ("tau[g]=normal(0, 1)", "must be a density of a positive number, found normal"),
        ("tau[h]=half_normal(1)", "did you mean 'tau[g]'?"),
        ("tau=half_normal(1)", "did you mean 'tau[g]'?"),
    ],
)
def test_a_prior_that_tau_cannot_have_is_refused(made, prior, found):
    words = ("sample", made / "s.zarr", "-o", made / "other", "--model", "gaussian", *QUIET)
    assert found in refused(made, 2, *words, "--prior", prior)


def test_predictions_say_how_many_rows_are_of_new_groups(made, tmp_path):
    rows = ["x,g,n", *(f"{k / 10},c{k},{100 - k}" for k in range(55, 65))]
    (tmp_path / "new.csv").write_text("\n".join(rows) + "\n")
    words = ("--like", made / "s.zarr", "--row-id", "n", "--quiet")
    assert streammc("ingest", tmp_path / "new.csv", tmp_path / "new.zarr", *words).code == 0
    predict = ("predict", made / "run", tmp_path / "new.zarr", "-o", tmp_path / "p.zarr")
    done = streammc(*predict)
    assert done.code == 0, done.err
    assert "rows of new groups  5" in done.out
    import xarray as xr

    found = xr.open_zarr(tmp_path / "p.zarr").load()
    assert found["row_id"].values.tolist() == [100 - k for k in range(55, 65)]
    width = (found["q95"] - found["q5"]).values
    assert width[5:].min() > 1.5 * width[:5].max()
    assert "nothing to do" in streammc(*predict).err
    again = streammc(*predict, "--overwrite", "--predict-draws", "50", "--json")
    assert (again.json["draws"], again.json["new_group_rows"]) == (50, 5)
    line = refused(
        tmp_path, 65, *predict[:-1], tmp_path / "q.zarr", "--new-groups", "refuse", "--quiet"
    )
    assert "expected rows of groups that the run has seen, found 'c60' in row 6" in line
    words = ("predict", made / "run", made / "s.zarr", "-o", tmp_path / "own.zarr", "--json")
    own = streammc(*words)
    assert own.json["new_group_rows"] == 0


def test_a_moved_store_of_a_run_is_given_to_predict(made, tmp_path):
    shutil.copytree(made, tmp_path / "all")
    folder = tmp_path / "all"
    (folder / "s.zarr").rename(folder / "moved.zarr")
    away = made / "s.zarr"
    away.rename(made / "away.zarr")
    try:
        (tmp_path / "new.csv").write_text("x,g\n1.0,c1\n")
        words = ("--like", folder / "moved.zarr", "--quiet")
        assert streammc("ingest", tmp_path / "new.csv", tmp_path / "new.zarr", *words).code == 0
        predict = ("predict", folder / "run", tmp_path / "new.zarr", "-o", tmp_path / "p.zarr")
        line = refused(tmp_path, 66, *predict, "--quiet")
        assert "--trained-on" in line
        assert streammc(*predict, "--trained-on", folder / "moved.zarr", "--quiet").code == 0
    finally:
        (made / "away.zarr").rename(away)


def test_a_run_of_groups_speaks_of_groups(made):
    told = streammc("diagnose", made / "run").out
    assert "random groups" in told or "hmc, because" in told
    assert "groups evaluated:" in told
    assert "groups always evaluated" in told or "hmc, because" in told
    assert "rows" not in told.split("sampler ")[1]


def test_other_commands_speak_of_groups_too(made, tmp_path):
    job = ("sample", made / "s.zarr", "-o", tmp_path / "new", "--model", "gaussian", "--seed", "1")
    for name, words in (("--subsample-size", "61"), ("--unit-rows", "99")):
        line = refused(tmp_path, 2, *job, "--sampler", "hmc-ecs", name, words, "--quiet")
        assert f"expected {name} of at most 60, the groups, found {words}" in line
    told = streammc(*job, "--dry-run").out
    assert "n_groups " in told
    assert "rows" not in told
    summarize = ("summarize", made / "s.zarr", "--model", "gaussian", "-o", tmp_path / "cv.zarr")
    told = streammc(*summarize).out
    assert "groups read" in told
    assert "rows" not in told
    compared = streammc("compare", made / "run", made / "run")
    assert "groups/iteration" in compared.out
    assert "evaluations of groups per" in compared.out
    assert "rows" not in compared.out
    other = streammc("compare", made / "run", "--json").json["runs"][0]
    assert (other["unit"], other["rows_per_iteration"] > 0) == ("group", True)


def test_a_flat_scale_needs_rows_and_not_groups():
    """Three groups of many rows determine sigma."""
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(90), rng.normal(size=(90, 2))]
    data = from_arrays(X, rng.normal(size=90), groups=np.arange(90) // 30)
    flat = {"beta*": priors.flat(), "sigma": priors.flat()}
    found = control_variates(data, models.gaussian(flat))
    assert found.certificate.converged


def test_info_names_the_regression_and_its_effects(made):
    told = streammc("info", made / "run").out
    assert "gaussian, effects of g (1 | g)" in told
    assert streammc("info", made / "run", "--json").json["model"] == "mixed"


def test_nodes_of_saved_control_variates_are_used(tmp_path):
    store = ingest(tmp_path, np.full(60, 8))
    words = ("--model", "logistic", "--quiet")
    kept, run = tmp_path / "cv.zarr", tmp_path / "run"
    done = streammc("summarize", store, "-o", kept, "--option", "nodes=21", *words)
    assert done.code == 0, done.err
    assert streammc("info", kept, "--json").json["certificate"]["nodes"] == 21
    words = ("sample", store, "-o", run, "--model", "logistic", "--control-variates", kept, *SHORT)
    for _ in range(2):
        done = streammc(*words)
        assert done.code == 0, done.err
    from streammc.trace.run_directory import RunDirectory

    assert RunDirectory.open(run).identity["model"]["nodes"] == 21
    line = refused(tmp_path, 78, *words, "--overwrite", "--option", "nodes=15")
    assert "control variates" in line
    assert streammc("effects", run, "-o", tmp_path / "effects.zarr", "--quiet").code == 0


def test_a_note_says_that_more_nodes_are_taken(tmp_path):
    rng = np.random.default_rng(1)
    g = np.repeat(np.arange(500), rng.integers(1, 6, 500))
    y = rng.poisson(np.exp(0.5 + 3.0 * rng.normal(size=500)[g]))
    lines = [f"{a},c{b}" for a, b in zip(y, g, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["y,g", *lines]) + "\n")
    words = ("--formula", "y ~ (1 | g)", "--quiet")
    assert streammc("ingest", tmp_path / "t.csv", tmp_path / "s.zarr", *words).code == 0
    words = ("summarize", tmp_path / "s.zarr", "-o", tmp_path / "cv.zarr", "--model", "poisson")
    done = streammc(*words)
    assert done.code == 0, done.err
    nodes = streammc("info", tmp_path / "cv.zarr", "--json").json["certificate"]["nodes"]
    assert nodes > 15
    assert f"quadrature over the effects of g: {nodes} nodes, since the error of 15" in done.err
    again = streammc(*words)
    assert "nothing to do" in again.err
