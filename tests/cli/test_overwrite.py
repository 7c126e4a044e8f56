"""``overwrite``: an older output is replaced by a complete one, or stays as it was."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from command_line import snapshot, streammc

import streammc as package
from streammc.errors import BusyError, ConfigError, DataError, IdentityError
from streammc.prediction.predict import predict
from streammc.runs.interactive import sample
from streammc.stores import Store, StoreWriter, open_store
from streammc.stores.ingest.from_dask import from_dask
from streammc.stores.ingest.from_xarray import from_xarray
from streammc.stores.ingest.ingestion import from_table
from streammc.stores.rows.row_blocks import whole
from streammc.trace.run_directory import RunDirectory

SHORT = ("--draws", "60", "--warmup", "60", "--chains", "2", "--quiet")


def table(shift: float = 0.0, rows: int = 200) -> dict[str, np.ndarray]:
    x = np.arange(rows) / rows + shift
    return {"x": x, "y": (np.arange(rows) * 7 % 3 == 0).astype(np.int64)}


def csv(path: Path, shift: float = 0.0) -> Path:
    columns = table(shift)
    rows = [f"{x},{y}" for x, y in zip(columns["x"], columns["y"], strict=True)]
    path.write_text("\n".join(["x,y", *rows]) + "\n")
    return path


def mean(path: Path) -> float:
    return float(open_store(path).attributes["standardization"]["mean"][-1])


def rows(store: Store) -> np.ndarray:
    return np.concatenate([whole(block).X.copy() for block in store.blocks()])


def test_the_script_of_a_notebook_runs_twice(tmp_path: Path) -> None:
    for shift in (0.0, 5.0):
        store = from_table(table(shift), response="y", path=tmp_path / "s", overwrite=True)
        cell = {"chains": 2, "draws": 30, "warmup": 30, "seed": 1, "audit": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sample(store, package.models.logistic(), path=tmp_path / "run", overwrite=True, **cell)
            predict(tmp_path / "run", store, tmp_path / "p", draws=10, overwrite=True)
        fingerprint = RunDirectory.open(tmp_path / "run").identity["store"]
        assert store.fingerprint == fingerprint
        assert store.fingerprint == xr.open_zarr(tmp_path / "p").attrs["store_fingerprint"]
    assert mean(tmp_path / "s") > 5.0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p", "run", "s"]


def test_a_table_that_is_refused_leaves_the_old_store(tmp_path: Path) -> None:
    from_table(table(), response="y", path=tmp_path / "s")
    before = snapshot(tmp_path)
    bad = table(5.0) | {"x": np.full(200, np.nan)}
    with pytest.raises(DataError, match="missing"):
        from_table(bad, response="y", path=tmp_path / "s", overwrite=True)
    assert before == snapshot(tmp_path)


@pytest.mark.parametrize("what", ["folder", "file", "run"])
def test_only_a_store_is_overwritten_by_a_store(tmp_path: Path, what: str) -> None:
    target = tmp_path / "s"
    if what == "file":
        target.write_text("mine")
    else:
        target.mkdir()
        (target / ("zarr.json" if what == "run" else "thesis.tex")).write_text("mine")
    before = snapshot(tmp_path)
    with pytest.raises(IdentityError, match="expected a store to overwrite"):
        from_table(table(), response="y", path=target, overwrite=True)
    assert before == snapshot(tmp_path)


def test_predictions_overwrite_neither_their_run_nor_their_store(run: Path, store: Path) -> None:
    before = snapshot(run.parent)
    for target in (run, store):
        with pytest.raises((IdentityError, ConfigError)):
            predict(run, open_store(store), target, draws=10, overwrite=True)
    assert before == snapshot(run.parent)


def test_store_may_be_made_from_the_store_that_it_replaces(tmp_path: Path) -> None:
    from_table(table(3.0), response="y", path=tmp_path / "s", standardize=False)
    before = rows(open_store(tmp_path / "s"))
    arrays = xr.open_zarr(tmp_path / "s", chunks={})  # read when it is used
    store = from_xarray(arrays, path=tmp_path / "s", overwrite=True, shuffle=True, seed=4)
    after = rows(store)
    assert not np.array_equal(before, after)
    assert np.array_equal(np.sort(before, axis=0), np.sort(after, axis=0))


def test_dask_arrays_overwrite(tmp_path: Path) -> None:
    import dask.array as da

    X = np.random.default_rng(1).normal(size=(300, 2))
    for scale in (1.0, 2.0):
        blocks = da.from_array(scale * X, chunks=(100, 2))
        store = from_dask(blocks, path=tmp_path / "s", overwrite=True)
        assert np.array_equal(scale * X, rows(store))
    with pytest.raises(IdentityError, match="choose another path"):
        from_dask(blocks, path=tmp_path / "s")


def test_an_open_store_that_was_replaced_is_not_read(tmp_path: Path) -> None:
    old = from_table(table(), response="y", path=tmp_path / "s")
    used = open_store(tmp_path / "s")
    mapped = used.rows()
    kept = np.array(mapped.arrays[0][:200])
    from_table(table(5.0), response="y", path=tmp_path / "s", seed=9, overwrite=True)
    assert np.array_equal(kept, np.array(mapped.arrays[0][:200]))  # it goes on with the old files
    with pytest.raises(BusyError, match="another in its place: open it again"):
        old.rows()


def test_a_run_that_is_refused_leaves_the_old_one(run: Path, store: Path) -> None:
    before = snapshot(run)
    done = streammc(
        "sample", store, "-o", run, "--model", "student-t", "--overwrite", "--sampler",
        "hmc-ecs", "--subsample-size", "100000", *SHORT,
    )  # fmt: skip
    assert done.code == 2, done.err
    assert before == snapshot(run)


def test_a_run_that_is_being_written_is_not_overwritten(run: Path, store: Path) -> None:
    with RunDirectory.open(run).lock():
        before = snapshot(run)
        with pytest.raises(BusyError):
            sample(
                open_store(store), package.models.logistic(), path=run, overwrite=True,
                draws=30, warmup=30, chains=1, audit=False,
            )  # fmt: skip
        assert before == snapshot(run)


def test_the_commands_overwrite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = (
        ("ingest", "t.csv", "s.zarr", "--response", "y", "--quiet"),
        ("summarize", "s.zarr", "--model", "logistic", "--quiet"),
        ("sample", "s.zarr", "-o", "run", "--model", "logistic", "--seed", "1", *SHORT),
        ("predict", "run", "s.zarr", "-o", "p.zarr", "--predict-draws", "10", "--quiet"),
    )
    csv(tmp_path / "t.csv")
    for words in commands:
        assert streammc(*words).code == 0
    csv(tmp_path / "t.csv", 5.0)
    for words in commands:
        assert streammc(*words).code == 78  # made from something else
        done = streammc(*words, "--overwrite")
        assert done.code == 0, done.err
        assert streammc(*words).code == 0  # recognised: nothing to do
    assert mean(tmp_path / "s.zarr") > 5.0


def test_a_failed_command_leaves_the_receipt_of_the_old_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("ingest", csv(tmp_path / "t.csv"), "s.zarr", "--response", "y", "--quiet")
    assert streammc(*words).code == 0
    before = snapshot(tmp_path)
    assert streammc(*words[:3], "--response", "z", "--overwrite").code == 65
    assert before.keys() == snapshot(tmp_path).keys()
    assert streammc(*words).code == 0


def test_a_kill_between_store_and_receipt_does_not_pass_as_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("ingest", csv(tmp_path / "t.csv"), "s.zarr", "--response", "y", "--quiet")
    assert streammc(*words).code == 0
    receipt = tmp_path / "s.zarr.config.json"
    seen = []
    enter = StoreWriter.__enter__

    def entered(writer: StoreWriter) -> StoreWriter:
        seen.append(receipt.exists())
        return enter(writer)

    monkeypatch.setattr(StoreWriter, "__enter__", entered)
    assert streammc(*words, "--overwrite").code == 0
    assert seen == [False]
    assert receipt.exists()


def test_refusals_of_an_existing_output_name_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("ingest", csv(tmp_path / "t.csv"), "s.zarr", "--response", "y", "--quiet")
    assert streammc(*words).code == 0
    other = streammc(*words, "--seed", "2")
    assert "found other 'seed': choose another path or delete it, or replace it" in other.err
    assert "--overwrite" in other.err
    (tmp_path / "s.zarr.config.json").unlink()
    assert "with --overwrite" in streammc(*words).err
    with pytest.raises(IdentityError, match=r"expected nothing at .*with overwrite=True$"):
        from_table(table(), response="y", path="s.zarr")


def test_refusals_of_what_cannot_be_overwritten_do_not_name_the_option(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "sampled").symlink_to(run)
    for target in ("thesis", "sampled"):
        done = streammc("ingest", csv(tmp_path / "t.csv"), target, "--response", "y")
        assert done.err.endswith("choose another path or delete it\n")
    with pytest.raises(IdentityError, match=r"choose another path, delete it$"):
        from_table(table(), response="y", path="thesis")


def test_refusal_of_another_run_or_predictions_names_the_option(run: Path, store: Path) -> None:
    target = run.parent / "twice"
    predict(run, open_store(store), target, draws=10)
    with pytest.raises(IdentityError, match="predictions there with overwrite=True"):
        predict(run, open_store(store), target, draws=10)
    options = {"draws": 30, "warmup": 30, "chains": 1, "audit": False}
    with pytest.raises(IdentityError, match=r"--overwrite .in Python overwrite=True"):
        sample(open_store(store), package.models.logistic(), path=run, seed=9, **options)
