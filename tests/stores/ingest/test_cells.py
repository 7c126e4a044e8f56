"""Cells: rows that are equal become one weighted row, with the posterior of the rows."""

from __future__ import annotations

import json
import re
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import streammc as command

import streammc
from streammc import registry
from streammc.errors import ConfigError, DataError, IdentityError, ModelError
from streammc.likelihood.data_views import gather
from streammc.models.base import sums_of_responses
from streammc.priors import normal
from streammc.stores.ingest import cells, ingestion
from streammc.stores.ingest.cells import CellTable
from streammc.stores.ingest.ingest_options import IngestOptions
from streammc.stores.sources.tables import open_table

N = 3000


@pytest.fixture(scope="module")
def columns():
    rng = np.random.default_rng(5)
    a, g = rng.integers(0, 3, N), rng.choice(["x", "y", "z"], N, p=[0.6, 0.3, 0.1])
    x, e = rng.integers(-2, 3, N) / 2.0, rng.integers(0, 2, N) / 4.0
    eta = 0.4 * x - 0.3 * (a == 1) + 0.5 * (g == "y") + e
    m = rng.integers(1, 4, N)
    return {
        "a": a, "g": g, "x": x, "e": e, "m": m, "w": rng.integers(1, 3, N) / 2.0,
        "late": (rng.logistic(size=N) < eta).astype(int),
        "k": rng.poisson(np.exp(eta)),
        "c": rng.binomial(m, 1.0 / (1.0 + np.exp(-eta))),
        "t": np.ceil(4.0 * rng.gamma(2.0, np.exp(eta) / 2.0)) / 4.0,
        "z": np.rint(2.0 * (eta + rng.normal(size=N))) / 2.0,
    }  # fmt: skip


CASES = {
    "logistic": ("late ~ C(a) + g + x", {"weight": "w", "offset": "e"}),
    "binomial": ("c ~ C(a) + g + x", {"trials": "m", "weight": "w"}),
    "poisson": ("k ~ C(a) * x + g", {"offset": "e"}),
    "negative-binomial": ("k ~ poly(x, 2) + g", {"offset": "e"}),
    "gamma": ("t ~ bs(x, df=4) + g", {"weight": "w"}),
    "gaussian": ("z ~ center(x) + g", {}),
    "student-t": ("z ~ x + g", {}),
}


def expansions(table, family, formula, **options):
    """Return the control variates of the rows of a table, and of its cells."""
    model = registry.model(family)(prior=normal(scale=2.0))
    shared = {"formula": formula, "dtype": "float64", **options}
    for choice in ("no", "yes"):
        data = streammc.from_table(table, cells=choice, **shared)
        assert ("cells" in data.attributes) is (choice == "yes")
        yield streammc.control_variates(data, model)


def distance(rows, of_cells):
    theta = np.abs(of_cells.theta_star - rows.theta_star).max()
    hessian = np.abs(of_cells.hessian - rows.hessian).max() / np.abs(rows.hessian).max()
    return max(theta, hessian)


@pytest.mark.parametrize("family", CASES)
def test_theta_star_and_hessian_of_cells_are_those_of_rows(family, columns):
    formula, options = CASES[family]
    assert distance(*expansions(columns, family, formula, **options)) < 1e-10


def test_cells_without_their_counts_are_caught(columns, monkeypatch):
    formula, options = CASES["poisson"]
    rows, right = expansions(columns, "poisson", formula, **options)
    monkeypatch.setattr(
        CellTable, "counted", lambda self, start, stop: np.ones(min(stop, self.n_rows) - start, int)
    )
    _, broken = expansions(columns, "poisson", formula, **options)
    assert distance(rows, right) < 1e-10
    assert distance(rows, broken) > 1e-2


def test_rows_with_missing_values_are_dropped_and_counted(columns):
    late, g = columns["late"].astype(object), columns["g"].astype(object)
    late[::7], g[::5] = None, None
    table = pa.table({**columns, "late": pa.array(late), "g": pa.array(g)})
    shared = {"formula": "late ~ C(a) + g + x", "drop_missing": True, "dtype": "float64"}
    said = []
    made = []
    for choice in ("no", "yes"):
        with pytest.warns(UserWarning, match="left out") as caught:
            made.append(streammc.from_table(table, cells=choice, **shared))
        said.append(str(caught[0].message))
    rows, of_cells = made
    assert said[0] == said[1]
    assert of_cells.attributes["n_dropped"] == rows.attributes["n_dropped"] > 0
    assert of_cells.attributes["cells"] == {"rows": rows.n_rows}
    model = streammc.models.logistic(prior=normal(scale=2.0))
    pair = [streammc.control_variates(each, model) for each in made]
    assert distance(*pair) < 1e-10


def test_default_priors_and_scales_are_those_of_rows(columns):
    made = [
        streammc.from_table(columns, formula="late ~ x + g", cells=choice, dtype="float64")
        for choice in ("no", "yes")
    ]
    scales = [each.attributes["standardization"] for each in made]
    for key in ("mean", "scale"):
        np.testing.assert_allclose(scales[1][key], scales[0][key], rtol=1e-12)
    model = streammc.models.logistic()
    pair = [streammc.control_variates(each, model) for each in made]
    assert distance(*pair) < 1e-10


@pytest.mark.parametrize(
    ("x", "different"),
    [
        ([1.0, 1.0 + 2.0**-52, 1.0, 1.0], 2),
        ([0.1, 0.1, 0.1, 0.1], 1),
        (["a", "a ", "A", "a"], 3),
        (["a\0", "a", "a\0", "\0a"], 3),
        ([True, False, True, True], 2),
        ([2**53, 2**53 - 1, 2**53, 2**53], 2),
    ],
)
def test_only_equal_values_are_one_cell(x, different):
    made = CellTable(open_table({"x": x}), True, lambda done: None)
    (batch,) = made.batches(["x"], 100)
    assert batch.num_rows == different
    assert batch.column(0).to_pylist() == list(dict.fromkeys(x))
    assert made.counted(0, different).tolist() == [x.count(each) for each in dict.fromkeys(x)]


def test_zeros_of_both_signs_and_nan_have_one_likelihood():
    x, y = np.array([0.0, -0.0, 1.0, 1.0, 0.0] * 9), np.array([0, 1, 1, 1, 1] * 9)
    rows, of_cells = expansions({"x": x, "y": y}, "logistic", "y ~ x")
    assert distance(rows, of_cells) < 1e-10
    x[5] = np.nan
    for choice in ("no", "yes"):
        with pytest.raises(DataError, match="missing values in 1 row, first in data row 6"):
            streammc.from_table({"x": x, "y": y}, formula="y ~ x", cells=choice)


@pytest.mark.parametrize("n", [1, 50])
def test_a_table_of_one_cell(n):
    table = {"x": np.full(n, 2.0), "k": np.full(n, 3)}
    with pytest.warns(UserWarning, match="constant"):
        rows, of_cells = expansions(table, "poisson", "k ~ x")
    assert distance(rows, of_cells) < 1e-10


def test_faults_are_reported_by_rows(columns):
    table = {**columns, "w": columns["w"].copy()}
    table["w"][[7, 40, 41]] = -1.0
    messages = []
    for choice in ("no", "yes"):
        with pytest.raises(DataError) as caught:
            streammc.from_table(table, formula="late ~ x", weight="w", cells=choice)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "negative weights in 3 rows, first in data row 8" in messages[0]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow", "dictionary", "folders"])
def test_cells_of_files_are_those_of_the_table(suffix, columns, tmp_path):
    names = ["late", "a", "g", "x"]
    table = pa.table({name: columns[name] for name in names})
    path = tmp_path / f"t.{suffix}"
    if suffix == "csv":
        from pyarrow import csv

        csv.write_csv(table, path)
    elif suffix == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=500)
    elif suffix == "folders":
        for each in ("x", "y", "z"):
            part = table.filter(pa.compute.equal(table["g"], each)).drop_columns("g")
            (path / f"g={each}").mkdir(parents=True)
            pq.write_table(part, path / f"g={each}" / "t.parquet")
    else:
        if suffix == "dictionary":  # each part has a dictionary of its own
            words = table["g"].combine_chunks()
            parts = [words[k : k + 700].dictionary_encode() for k in range(0, N, 700)]
            table = table.set_column(2, "g", pa.chunked_array(parts))
        pq.write_table(table, path, row_group_size=700)
    expected = streammc.from_table(table, formula="late ~ C(a) + g + x", cells="yes")
    found = streammc.from_table(path, formula="late ~ C(a) + g + x", cells="yes")
    assert found.n_rows == expected.n_rows < N / 4
    assert found.attributes["cells"] == {"rows": N}
    assert expected.feature_names == found.feature_names
    pair = [gather(each, np.arange(each.n_rows)) for each in (expected, found)]
    if suffix == "folders":  # which are read one after the other
        pair = [np.c_[rows.X, rows.y, rows.weight] for rows in pair]
        pair = [rows[np.lexsort(rows.T)] for rows in pair]
    for first, second in zip(*pair, strict=True):
        assert np.array_equal(first, second)


def made_of(table, choice, formula="late ~ C(a) + g", **options):
    return ingestion.rows_of(
        table, IngestOptions(formula=formula, cells=choice, **options), None, overwrite=False
    )


def test_auto_takes_cells_of_a_large_table_where_they_are_few(columns, monkeypatch):
    assert made_of(columns, None).n_rows == N  # a small table
    monkeypatch.setattr(cells, "LEAST_ROWS", N)
    assert made_of(columns, None).n_rows == made_of(columns, "yes").n_rows < N / 100
    assert made_of(columns, "no").n_rows == N
    many = {**columns, "a": np.arange(N) // 3, "g": np.repeat("x", N)}
    assert made_of(many, None, "late ~ a").n_rows == N
    assert N / 3 < made_of(many, "yes", "late ~ a").n_rows < N
    differ = {**columns, "a": np.arange(N)}
    assert made_of(differ, None, "late ~ a").n_rows == N


def test_reading_ends_early_where_rows_differ(columns, monkeypatch):
    read = []
    count = CellTable._parts

    def parts(self, *arguments):
        for rows, part in count(self, *arguments):
            read.append(rows)
            yield rows, part

    monkeypatch.setattr(CellTable, "_parts", parts)
    for name, rows in (("LEAST_ROWS", 256), ("FIRST_ROWS", 512), ("_MERGED_ROWS", 128)):
        monkeypatch.setattr(cells, name, rows)
    monkeypatch.setattr("streammc.stores.ingest.table_blocks._BLOCK_BYTES", 8 * 3 * 32)
    table = pa.table({**columns, "a": np.arange(N) % 2000})
    kept = made_of(table, "auto", "late ~ a + g")
    assert kept.n_rows == N
    assert "cells" not in kept.attributes
    assert sum(read) <= 1024
    with pytest.raises(DataError, match=r"--cells yes in the table, found \d+ different rows amo"):
        made_of(table, "yes", "late ~ a + g")


def test_a_first_look_at_some_rows_finds_cells_in_any_order(monkeypatch):
    """The first 30,000 rows of a grid differ, and the next ones are the same."""
    n = 120_000
    grid = {"x": np.arange(n) % 200, "z": np.arange(n) % 30_000 // 200, "y": np.arange(n) % 2}
    options = IngestOptions(formula="y ~ x + z", cells="auto")
    looked, grouped = [], cells._grouped

    def counted(table, columns, aggregates):
        looked.append(table.num_rows)
        return grouped(table, columns, aggregates)

    monkeypatch.setattr(cells, "_grouped", counted)
    for apart in (0.0, 1.0):
        looked.clear()
        table = {**grid, "x": grid["x"] + apart * np.random.default_rng(1).random(n)}
        rows = ingestion.rows_of(table, options, None, overwrite=False).n_rows
        assert rows == (n if apart else 30_000)
        assert (max(looked) <= cells.LEAST_ROWS // 8) == (apart > 0.0)


def test_the_table_of_cells_is_bounded(columns, monkeypatch):
    monkeypatch.setattr(cells, "MOST_BYTES", 1000)
    with pytest.raises(DataError, match="which take over 0 MB: leave it out"):
        made_of(columns, "yes", "late ~ C(a) * x + g")


def ordered(words, levels):
    return pa.DictionaryArray.from_arrays(
        pa.array([levels.index(word) for word in words], pa.int32()), levels, ordered=True
    )


def test_orders_of_categories_that_differ_keep_rows(columns):
    words = columns["g"].tolist()
    halves = [ordered(words[:1500], ["x", "y", "z"]), ordered(words[1500:], ["x", "y", "z", "v"])]
    table = pa.table({"late": columns["late"], "g": pa.chunked_array([halves[0], halves[0]])})
    assert made_of(table, "yes", "late ~ g").n_rows == 6
    chunked = pa.chunked_array([halves[0], halves[1].cast(halves[1].type)])
    table = pa.table({"late": columns["late"], "g": chunked})
    with pytest.raises(DataError, match="several orders of the categories of column 'g'"):
        made_of(table, "yes", "late ~ g")


@pytest.mark.parametrize("drop_missing", [False, True])
def test_cells_of_groups_are_those_of_rows(drop_missing, columns):
    rng = np.random.default_rng(8)
    labels = rng.choice(list("abcdefgh"), N)
    late = columns["x"] + rng.normal(size=8)[np.searchsorted(list("abcdefgh"), labels)]
    late = (rng.logistic(size=N) < late).astype(int)
    words = pa.array(labels, mask=drop_missing * (np.arange(N) % 9 == 0))
    table = pa.table({"late": late, "x": columns["x"], "h": words})
    shared = {"formula": "late ~ x + (1 | h)", "dtype": "float64", "drop_missing": drop_missing}
    said, pair = [], []
    for choice in ("no", "yes"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            data = streammc.from_table(table, cells=choice, **shared)
        said.append([str(each.message) for each in caught])
        pair.append(streammc.control_variates(data, streammc.models.logistic()))
    assert said[0] == said[1]
    assert len(said[0]) == drop_missing
    assert data.n_rows == 8 * 5 * 2
    assert data.attributes["cells"]["rows"] == N - words.null_count
    assert distance(*pair) < 1e-10


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"row_id": "m"}, DataError, "found a column of the row id, which keeps rows apart"),
        ({"cells": "perhaps"}, ConfigError, "expected 'auto', 'yes' or 'no' as cells"),
        ({"cells": True}, ConfigError, "expected 'auto', 'yes' or 'no' as cells, found True"),
    ],
)
def test_what_keeps_rows_apart_is_refused(change, error, message, columns):
    options = {"formula": "late ~ g", "cells": "yes", **change}
    with pytest.raises(error, match=re.escape(message)):
        streammc.from_table(columns, **options)
    if error is DataError:
        assert streammc.from_table(columns, **{**options, "cells": "auto"}).n_rows == N


def test_a_stream_that_is_read_once_keeps_its_rows(columns):
    def stream():
        return pa.table(columns).to_reader()

    with pytest.raises(DataError, match="found a stream that can be read once"):
        streammc.from_table(stream(), formula="late ~ g", cells="yes")
    assert streammc.from_table(stream(), formula="late ~ g", cells="auto").n_rows == N


@pytest.fixture(scope="module")
def files(columns, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells")
    pq.write_table(pa.table({n: columns[n] for n in ("late", "a", "g", "x")}), folder / "t.parquet")
    words = ["ingest", str(folder / "t.parquet"), str(folder / "s.zarr")]
    words += ["--formula", "late ~ C(a) + g + x", "--cells", "yes"]
    done = command(*words)
    assert done.code == 0, done.err
    assert re.search(r"rows +\d\d cells of 3,000 rows", done.out)
    assert command(*words).err.count("nothing to do") == 1
    return folder


def test_info_says_how_many_cells_of_how_many_rows(files):
    shown = command("info", str(files / "s.zarr"))
    assert re.search(r"n_rows +\d\d cells of 3,000 rows", shown.out)
    assert "rows of the table" in streammc.open_store(files / "s.zarr")._repr_html_()
    document = command("info", str(files / "s.zarr"), "--json").json
    assert document["cells"] == {"rows": N}
    assert document["n_rows"] < 100


def test_a_store_of_cells_takes_no_more_rows_and_predicts_by_rows(files, tmp_path):
    store, table = str(files / "s.zarr"), str(files / "t.parquet")
    with pytest.raises(IdentityError, match="expected a store of rows to append to, found cells"):
        streammc.append(table, store, again=True)
    with pytest.raises(ConfigError, match="expected --like or --cells yes, found both"):
        streammc.from_table(table, like=store, cells="yes")
    data = streammc.open_store(store)
    model = streammc.models.logistic()
    run = streammc.sample(data, model, draws=100, warmup=100, chains=2, seed=1)
    for function in (streammc.predict, streammc.posterior_predictive):
        with pytest.raises(DataError, match=r"cells of 3,000 rows at .*--like"):
            function(run, data)
    rows = streammc.from_table(table, like=store)
    assert rows.n_rows == N
    assert streammc.predict(run, rows).sizes["row"] == N


def test_averages_over_cells_are_those_over_rows(files):
    data = streammc.open_store(files / "s.zarr")
    sizes = {"draws": 200, "warmup": 100, "chains": 2, "seed": 1}
    run = streammc.sample(data, streammc.models.logistic(), **sizes)
    rows = streammc.from_table(str(files / "t.parquet"), like=data)
    found = [streammc.comparisons(run, each, {"x": 1, "g": None}) for each in (rows, data)]
    expected, of_cells = (each["estimate"].to_numpy() for each in found)
    np.testing.assert_allclose(of_cells, expected, rtol=1e-3)
    with pytest.raises(DataError, match="expected rows to count each once, found"):
        streammc.comparisons(run, data, {"x": 1}, weights=False)


def test_leave_one_out_of_cells_is_that_of_rows(files):
    found = []
    for choice in ("no", "yes"):
        data = streammc.from_table(
            str(files / "t.parquet"), formula="late ~ C(a) + g + x", cells=choice
        )
        model = streammc.models.logistic(prior=normal(scale=2.0))
        run = streammc.sample(
            data, model, sampler=streammc.samplers.hmc(), draws=1000, warmup=300, seed=1
        )
        found.append(streammc.score(run, data))
    rows, of_cells = found
    assert of_cells["weight"] == rows["weight"] == N
    loo, other = of_cells["elpd_loo"], rows["elpd_loo"]
    assert abs(loo["estimate"] - other["estimate"]) < 0.05 * rows["p_loo"]["estimate"]
    assert loo["se"] == pytest.approx(other["se"], rel=0.01)


@pytest.mark.parametrize("role", ["trials", "weight"])
def test_rows_of_cells_are_not_left_out_together(role, columns):
    response, name = {"trials": ("c", "m"), "weight": ("late", "w")}[role]
    data = streammc.from_table(columns, formula=f"{response} ~ g", **{role: name}, cells="yes")
    model = streammc.models.binomial() if role == "trials" else streammc.models.logistic()
    run = streammc.sample(data, model, draws=100, warmup=100, chains=2, seed=1)
    with pytest.raises(DataError, match="expected rows to leave out one by one"):
        streammc.score(run, data)


def test_fit_draws_from_cells_and_says_so(files, monkeypatch):
    monkeypatch.setattr(cells, "LEAST_ROWS", N)
    table, formula = str(files / "t.parquet"), "late ~ C(a) + g + x"
    sizes = {"draws": 1000, "warmup": 300, "chains": 4, "seed": 2}
    prior = normal(scale=2.0)
    draws = []
    for options in ({}, {"cells": "no"}, {"sampler": "smh"}, {"sampler": "hmc"}):
        tree = streammc.fit(table, formula, "logistic", prior=prior, **options, **sizes)
        notes = json.loads(tree.attrs["summary"])["notes"]
        said = [each for each in notes if re.match(r"the 3,000 rows of the table are \d\d c", each)]
        assert bool(said) is (options.get("cells") != "no")
        draws.append(tree["posterior"]["beta"].values.reshape(-1, tree.posterior.sizes["feature"]))
    means = [each.mean(axis=0) for each in draws]
    sd = draws[1].std(axis=0)
    for mean in means:  # 4.5 errors of 1,000 effective draws of each
        assert np.abs((mean - means[1]) / sd).max() < 4.5 * np.sqrt(2.0 / 1000.0)
    broken = means[1] + 0.3 * sd
    assert np.abs((broken - means[1]) / sd).max() > 4.5 * np.sqrt(2.0 / 1000.0)


SUMS = {
    "gaussian": ("f ~ C(a) + g + x", {"weight": "w"}),
    "poisson": ("k ~ C(a) + g + x", {"offset": "e", "weight": "w"}),
    "exponential": ("f2 ~ C(a) + g + x", {"offset": "e"}),
}


@pytest.fixture(scope="module")
def continuous(columns):
    rng = np.random.default_rng(6)
    f = 1e4 + columns["z"] + rng.normal(size=N)
    return {**columns, "f": f, "f2": rng.exponential(np.exp(0.3 * columns["x"]))}


def of_sums(table, family, **options):
    """Return the rows of a table and its cells by the sums of their responses, and the model."""
    formula, roles = SUMS[family]
    roles = {**roles, **options}
    model = registry.model(family)()  # default priors are those of the rows, too
    shared = {"formula": formula, "dtype": "float64", **roles}
    rows = streammc.from_table(table, cells="no", **shared)
    chosen = IngestOptions(cells="yes", sufficient=model.sufficient, **shared)
    return rows, ingestion.rows_of(table, chosen, None, overwrite=False), model


@pytest.mark.parametrize("family", SUMS)
def test_sums_of_responses_are_enough(family, continuous):
    rows, of_cells, model = of_sums(continuous, family)
    designs = len({*zip(*(continuous[each] for each in ("a", "g", "x", "e", "w")), strict=True)})
    assert of_cells.n_rows <= 2 * designs < N / 4
    assert of_cells.attributes["cells"] == {"rows": N, "statistics": model.sufficient}
    pair = [streammc.control_variates(each, model) for each in (rows, of_cells)]
    assert distance(*pair) < 1e-10 * max(1.0, np.abs(pair[0].theta_star).max())


@pytest.mark.parametrize("family", ["logistic", "binomial", *SUMS])
def test_weights_that_differ_add_up(family, continuous):
    table = {**continuous, "v": np.random.default_rng(9).exponential(size=N).round(3)}
    table["v"][::50] = 0.0
    if family in SUMS:
        rows, of_cells, model = of_sums(table, family, weight="v")
    else:
        formula, roles = CASES[family]
        shared = {**roles, "formula": formula, "dtype": "float64", "weight": "v"}
        model = registry.model(family)(prior=normal(scale=2.0))
        rows, of_cells = (
            streammc.from_table(table, cells=choice, **shared) for choice in ("no", "yes")
        )
    assert of_cells.n_rows < N / 4
    pair = [streammc.control_variates(each, model) for each in (rows, of_cells)]
    assert distance(*pair) < 1e-10 * max(1.0, np.abs(pair[0].theta_star).max())


def test_missing_weights_keep_rows(columns, monkeypatch):
    monkeypatch.setattr(cells, "LEAST_ROWS", N)
    table = {**columns, "w": np.where(np.arange(N) == 3, np.nan, columns["w"])}
    shared = {"formula": "late ~ g", "weight": "w", "drop_missing": True}
    with pytest.warns(UserWarning, match="left out: 1"):
        assert made_of(table, "auto", "late ~ g", weight="w", drop_missing=True).n_rows == N - 1
    with pytest.raises(DataError, match="expected a weight in every row with --cells yes, found"):
        streammc.from_table(table, cells="yes", **shared)
    with pytest.raises(DataError, match="missing values in 1 row, first in data row 4"):
        streammc.from_table(table, cells="yes", **{**shared, "drop_missing": False})


def test_sums_without_their_squares_are_caught(continuous, monkeypatch):
    rows, right, model = of_sums(continuous, "gaussian")
    points = cells._points
    monkeypatch.setattr(cells, "_points", lambda kind, *sums: points("mean", *sums))
    _, broken, _ = of_sums(continuous, "gaussian")
    first, same, other = (streammc.control_variates(each, model) for each in (rows, right, broken))
    assert distance(first, same) < 1e-6
    assert abs(other.theta_star[-1] - first.theta_star[-1]) > 0.1  # log sigma


@pytest.mark.parametrize("noise", [0.0, 1e-5])
def test_sums_that_lose_digits_are_not_taken(noise, columns):
    f = 1e3 * columns["a"] + noise * np.random.default_rng(1).normal(size=N)
    options = IngestOptions(formula="f ~ C(a)", cells="yes", sufficient="moments")
    made = ingestion.rows_of({**columns, "f": f}, options, None, overwrite=False)
    assert made.attributes["cells"] == {"rows": N}
    assert made.n_rows == (N if noise else 3)


@pytest.mark.parametrize("kind", ["counts", "moments", "mean"])
def test_points_have_the_sums_of_their_rows(kind):
    rng = np.random.default_rng(7)
    n = np.r_[np.arange(1, 40), 10**6 + 1]
    y = [rng.poisson(3.0, each).astype(float) + (kind != "counts") * rng.random() for each in n]
    y[3][:] = y[3][0]
    sums = [np.array([each.sum() for each in y]), np.array([(each**2).sum() for each in y])]
    row, point, count, weight = cells._points(kind, n, n.astype(float), sums)
    np.testing.assert_allclose(weight, count, rtol=1e-12)
    _check_points((n, n.astype(float), sums), (row, point, count, weight), kind)
    w = [rng.exponential(size=each) for each in n]
    total = np.array([each.sum() for each in w])
    sums = [np.array([(u * each**p).sum() for u, each in zip(w, y, strict=True)]) for p in (1, 2)]
    _check_points((n, total, sums), cells._points(kind, n, total, sums), kind)


def _check_points(rows, points, kind):
    n, total, sums = rows
    row, point, count, weight = points
    assert count.min() >= 1
    assert weight.min() >= 0.0
    assert point.size <= 2 * n.size
    np.testing.assert_array_equal(np.bincount(row, count), n)
    np.testing.assert_allclose(np.bincount(row, weight), total, rtol=1e-12)
    np.testing.assert_allclose(np.bincount(row, weight * point), sums[0], rtol=1e-12)
    if kind == "counts":
        assert np.array_equal(point, np.rint(point))
    if kind == "moments":
        np.testing.assert_allclose(np.bincount(row, weight * point**2), sums[1], rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "formula"),
    [
        ({"k": np.where(np.arange(N) == 5, -1, 1)}, "k ~ g"),
        ({"k": np.where(np.arange(N) == 5, 0.5, 1.0)}, "k ~ g"),
        ({"k": np.arange(N) % 2 == 0}, "k ~ g"),
        ({}, "I(k + 1) ~ g"),
        ({}, "k ~ 1"),
    ],
)
def test_responses_without_sums_have_to_be_equal(change, formula, columns):
    options = IngestOptions(formula=formula, cells="yes", sufficient="counts")
    made = ingestion.rows_of({**columns, **change}, options, None, overwrite=False)
    assert made.attributes["cells"] == {"rows": N}


def test_a_missing_response_is_dropped_or_found_by_its_row(columns):
    k = columns["k"].astype(float)
    k[[4, 9]] = np.nan
    shared = {"formula": "k ~ g", "cells": "yes", "sufficient": "counts"}
    with pytest.raises(DataError, match="missing values in 2 rows, first in data row 5"):
        ingestion.rows_of({**columns, "k": k}, IngestOptions(**shared), None, overwrite=False)
    options = IngestOptions(**shared, drop_missing=True)
    with pytest.warns(UserWarning, match="left out: 2"):
        made = ingestion.rows_of({**columns, "k": k}, options, None, overwrite=False)
    assert made.attributes["cells"] == {"rows": N - 2}


@pytest.mark.parametrize("command_line", [False, True])
def test_fit_keeps_the_sums_of_a_continuous_response(command_line, continuous, tmp_path):
    table = {name: continuous[name] for name in ("f", "a", "g", "x")}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    runs = []
    for choice in ("no", "yes"):
        if command_line:
            run = str(tmp_path / choice)
            words = ["fit", str(tmp_path / "t.parquet"), "-o", run, "--formula", "f ~ C(a) + g + x"]
            sizes = ["--draws", "300", "--warmup", "200", "--chains", "2", "--seed", "1"]
            done = command(*words, "--model", "gaussian", "--cells", choice, *sizes, "--json")
            assert done.code == 0, done.err
            runs.append(done.json)
        else:
            tree = streammc.fit(
                table, "f ~ C(a) + g + x", "gaussian", cells=choice, draws=300, warmup=200,
                chains=2, seed=1,
            )  # fmt: skip
            runs.append(json.loads(tree.attrs["summary"]))
    (note,) = runs[1]["notes"]
    assert re.fullmatch(r"the 3,000 rows of the table are \d\d rows with the same sums of .*", note)
    assert runs[0]["notes"] == []
    for label, rows in runs[0]["parameters"].items():
        found = runs[1]["parameters"][label]
        error = 4.5 * np.hypot(rows["mcse_mean"], found["mcse_mean"])
        assert abs(found["mean"] - rows["mean"]) < error
        assert found["sd"] == pytest.approx(rows["sd"], rel=0.2)


def test_a_family_made_of_another_states_its_own_sums():
    class Overdispersed(type(streammc.models.poisson())):
        pass

    assert sums_of_responses(streammc.models.poisson()) == "counts"
    assert sums_of_responses(Overdispersed(normal(scale=1.0))) is None


def test_a_flat_prior_of_a_scale_needs_rows_and_not_cells():
    table = {"y": np.arange(100) % 2}
    model = streammc.models.gaussian(prior=streammc.priors.flat())
    pair = [
        streammc.control_variates(
            streammc.from_table(table, formula="y ~ 1", cells=choice, dtype="float64"), model
        )
        for choice in ("no", "yes")
    ]
    assert distance(*pair) < 1e-10


def test_a_likelihood_of_all_rows_together_takes_no_cells():
    table = {"x": np.arange(4.0).repeat(5), "y": np.sin(np.arange(4.0)).repeat(5)}
    data = streammc.from_table(table, formula="y ~ x - 1", cells="yes")
    with pytest.raises(ModelError, match="expected rows that count once in 'memory', found cells"):
        streammc.sample(data, streammc.models.gaussian_process(), draws=10, warmup=10, chains=1)
