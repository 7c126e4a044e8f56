"""``predict`` and ``effects`` into .csv and .parquet: the values are those of zarr."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from command_line import snapshot, streammc

import streammc as library
from streammc.cli.receipt import Receipt
from streammc.errors import ConfigError

SAMPLE = ("--model", "logistic", "--sampler", "hmc", "--seed", "1", "--draws", "40", "--warmup")
ROWS = 9000


def read(path: str) -> pd.DataFrame:
    table: pd.DataFrame
    if path.endswith(".parquet"):
        return pd.read_parquet(path)
    table = pd.read_csv(path, keep_default_na=False)
    return table


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a run on 12 groups, one of them NA, and new.zarr, rows in three chunks."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(1)
    names = np.array(["NA", 'a "b"', *(f"C{k:02d}" for k in range(10))])
    carrier, x = rng.integers(0, 12, ROWS), rng.normal(size=ROWS)
    late = (rng.random(ROWS) < np.where(carrier < 6, 0.2, 0.8)).astype(int)
    table = pd.DataFrame({"late": late, "x": x, "carrier": names[carrier]})
    table["key"] = [f"k{row}" for row in rng.permutation(ROWS)]
    table.head(900).to_parquet(folder / "old.parquet")
    table.to_parquet(folder / "new.parquet")
    formula = ("--formula", "late ~ x + (1 | carrier)", "--quiet")
    assert 0 == streammc("ingest", folder / "old.parquet", folder / "old.zarr", *formula).code
    like = ("--like", folder / "old.zarr", "--row-id", "key", "--chunk-rows", "4096", "--quiet")
    made = streammc("ingest", folder / "new.parquet", folder / "new.zarr", *like)
    assert 0 == made.code, made.err
    done = streammc("sample", folder / "old.zarr", "-o", folder / "run", *SAMPLE, "40", "--quiet")
    assert 0 == done.code, done.err
    return folder


@pytest.fixture
def here(grouped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return grouped


def words(grouped: Path, command: str, output: str) -> tuple[str | Path, ...]:
    if command == "predict":
        few = ("--predict-draws", "10", "--quiet")
        return ("predict", grouped / "run", grouped / "new.zarr", "-o", output, *few)
    return ("effects", grouped / "run", "-o", output, "--effect-draws", "10", "--quiet")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_predictions_of_rows_are_those_of_zarr_with_ids_and_groups(here: Path, suffix: str) -> None:
    made = streammc(*words(here, "predict", f"p{suffix}"), "--json")
    assert 0 == made.code, made.err
    assert 0 == streammc(*words(here, "predict", "p.zarr")).code
    found, expected = read(f"p{suffix}"), xr.open_zarr("p.zarr")
    assert ["row_id", "group", "mean", "q5", "q95"] == list(found.columns)
    for name in ("row_id", "mean", "q5", "q95"):
        np.testing.assert_array_equal(expected[name].values, found[name])
    table = pd.read_parquet(here / "new.parquet").set_index("key")
    assert table.loc[found["row_id"], "carrier"].tolist() == found["group"].tolist()
    assert {f"p{suffix}", f"p{suffix}.config.json"} < {each.name for each in Path().iterdir()}
    assert not [each for each in Path().iterdir() if "partial" in each.name]
    assert (ROWS, "key") == (made.json["rows"], made.json["row_id"])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_effects_have_a_line_per_group_and_effect(here: Path, suffix: str) -> None:
    for output in (f"e{suffix}", "e.zarr"):
        assert 0 == streammc(*words(here, "effects", output)).code
    found, expected = read(f"e{suffix}"), xr.open_zarr("e.zarr")
    assert ["group", "effect", "mean", "sd", "q5", "q95", "rows"] == list(found.columns)
    assert (12, {"Intercept"}) == (len(found), {*found["effect"]})
    assert {"NA", 'a "b"'} < {*found["group"]}
    for line in found.itertuples():
        own = expected.sel(group=line.group, effect=line.effect)
        shown = (line.mean, line.sd, line.q5, line.q95, line.rows)
        assert shown == tuple(float(own[name]) for name in ("mean", "sd", "q5", "q95", "rows"))


def test_draws_of_effects_have_a_line_per_draw(here: Path) -> None:
    draws = ("--group", "NA", "--group", "C03", "--draws", "20", "--seed", "1", "--quiet")
    for output in ("d.csv", "d.zarr"):
        assert 0 == streammc("effects", here / "run", "-o", output, *draws).code
    found, expected = read("d.csv"), xr.open_zarr("d.zarr")
    assert ["group", "chain", "draw", "effect", "u", "rows"] == list(found.columns)
    assert expected["u"].size == len(found)
    for line in found.iloc[::7].itertuples():
        at = {"group": line.group, "chain": line.chain, "draw": line.draw, "effect": line.effect}
        assert line.u == float(expected["u"].sel(at))


@pytest.mark.parametrize("command", ["predict", "effects"])
@pytest.mark.parametrize("name", ["p.txt", "p.CSV.gz", "p.xlsx", "p-0.9"])
def test_another_suffix_is_refused_before_any_work(here: Path, command: str, name: str) -> None:
    done = streammc(*words(here, command, name))
    assert 2 == done.code
    assert "expected a path that ends in .zarr, .csv or .parquet" in done.err
    assert {} == snapshot(Path())


@pytest.mark.parametrize("command", ["predict", "effects"])
def test_no_suffix_is_a_zarr_group(here: Path, command: str) -> None:
    assert 0 == streammc(*words(here, command, "p")).code
    assert Path("p/zarr.json").exists()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("command", ["predict", "effects"])
def test_the_same_command_leaves_the_table_and_another_needs_overwrite(
    here: Path, command: str, suffix: str
) -> None:
    line = words(here, command, f"p{suffix}")
    first = streammc(*line, "--json")
    before = snapshot(Path())
    assert first.json == streammc(*line, "--json").json
    assert before == snapshot(Path())
    other = streammc(*line, "--interval", "0.5")
    assert (78, True) == (other.code, "or replace it with --overwrite" in other.err)
    assert before == snapshot(Path())
    assert 0 == streammc(*line, "--interval", "0.5", "--overwrite").code
    assert {"q25", "q75"} < {*read(f"p{suffix}").columns}
    Path(f"p{suffix}").write_bytes(Path(f"p{suffix}").read_bytes() + b"\n")
    edited = streammc(*line, "--interval", "0.5")
    assert (78, True) == (edited.code, "found another fingerprint" in edited.err)


def test_a_table_of_others_is_never_replaced(here: Path) -> None:
    for name, text in (("p.csv", "late,x\n1,2\n"), ("p.parquet", "no table")):
        Path(name).write_text(text)
        for more in ((), ("--overwrite",)):
            refused = streammc(*words(here, "predict", name), *more)
            assert (78, text) == (refused.code, Path(name).read_text()), refused.err


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_command_that_is_killed_before_its_receipt_knows_its_table(
    here: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = words(here, "predict", f"p{suffix}")
    write = Receipt.write

    def killed(self: Any, result: Any, *more: Any, **named: Any) -> None:
        if result is not None:
            raise KeyboardInterrupt
        write(self, result, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Receipt, "write", killed)
        assert 130 == streammc(*line).code
    receipt = json.loads(Path(f"p{suffix}.config.json").read_text())
    assert receipt["result"] is None
    table = Path(f"p{suffix}").read_bytes()
    again = streammc(*line, "--json")
    assert 0 == again.code, again.err
    assert {"output": f"p{suffix}", **receipt["announced"]} == again.json
    assert json.loads(Path(f"p{suffix}.config.json").read_text())["result"] is not None
    # Another table in its place is not taken for it.
    Path(f"p{suffix}.config.json").write_text(json.dumps(receipt))
    Path(f"p{suffix}").write_bytes(table[:-1])
    other = streammc(*line)
    assert (78, True) == (other.code, "found another output in its place" in other.err)


def test_groups_of_a_column_need_zarr(here: Path) -> None:
    done = streammc(*words(here, "predict", "p.csv"), "--by", "x")
    assert (2, True) == (done.code, "ends in .zarr with --by 'x'" in done.err)
    assert {} == snapshot(Path())


def test_python_returns_a_data_set_and_writes_no_table(here: Path) -> None:
    store = library.open_store(here / "new.zarr")
    trained = library.open_store(here / "old.zarr")
    for call in (
        lambda path: library.predict(here / "run", store, path, trained_on=trained),
        lambda path: library.effects(here / "run", trained, path),
        lambda path: library.effect_draws(here / "run", trained, ["NA"], path),
    ):
        for path, said in (("p.csv", "to_dataframe"), ("p.txt", "decides the format")):
            with pytest.raises(ConfigError, match=said):
                call(path)
    assert {} == snapshot(Path())


@pytest.mark.parametrize(
    "line",
    [
        ("ingest", "old.parquet", "new.csv", "--response", "late"),
        ("simulate", "logistic", "made.parquet", "--rows", "9", "--dim", "2", "--seed", "1"),
        ("summarize", "old.zarr", "-o", "cv.csv", "--model", "logistic"),
        ("sample", "old.zarr", "-o", "run.html", "--model", "logistic"),
    ],
    ids=lambda line: line[0],
)
def test_folders_are_not_made_under_the_name_of_a_file(here: Path, line: tuple[str, ...]) -> None:
    given = [str(here / word) if word.startswith("old") else word for word in line]
    done = streammc(*given)
    assert (2, True) == (done.code, "a folder, found" in done.err), done.err
    assert {} == snapshot(Path())
