"""Rows appended to stores with factors as codes, to shards, and to both."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streammc
from streammc.control_variates import compute, update
from streammc.errors import DataError, StoreError
from streammc.numerics.coded_matrix import CodedMatrix
from streammc.protocols import Rows
from streammc.stores.format import manifest
from streammc.stores.ingest.append import append
from streammc.stores.ingest.ingestion import ingest
from streammc.stores.rows.row_blocks import whole
from streammc.stores.store import open_store, verify

FORMULA = "y ~ x + C(g) + C(h)"
LEVELS = {"g": 70, "h": 4}
CHUNK = 32_768
LAYOUTS: dict[str, dict[str, Any]] = {
    "codes": {},
    "shards": {"layout": "cloud", "codes_above": 4096},
    "zstd": {"layout": "cloud", "compression": "zstd", "codes_above": 4096},
    "codes in shards": {"layout": "cloud", "compression": "zstd"},
}
MODEL = streammc.models.logistic(prior=streammc.priors.normal(scale=1.0))


def frame(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    level = {
        name: np.concatenate([np.arange(count), rng.integers(0, count, rows - count)])
        for name, count in LEVELS.items()
    }
    x = rng.normal(1.0, 2.0, rows)
    eta = 0.3 * x - 0.8 + 0.02 * level["g"] - 0.3 * level["h"]
    y = (rng.uniform(size=rows) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
    texts = {name: [f"{name}{code:02d}" for code in codes] for name, codes in level.items()}
    return pd.DataFrame({"x": x, **texts, "y": y})


def made(source: Any, path: Path, **options: Any) -> Any:
    """Make a store without its warnings, and open it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ingest(source, path, **options)
    return open_store(path)


def rows_of(store: Any) -> tuple[np.ndarray, ...]:
    """Return the rows as full passes read them, codes expanded."""
    parts = [whole(block)[2:] for block in store.blocks()]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def gathered(store: Any, at: np.ndarray) -> Rows:
    """Return rows by their numbers, as samplers read them."""
    n = at.size
    out = Rows(np.empty((n, store.n_features)), np.empty(n), np.empty(n), np.empty(n))
    store.rows().gather(at, 1, out)
    return out


def assert_same_rows(expected: Any, found: Any) -> None:
    for one, other in zip(rows_of(expected), rows_of(found), strict=True):
        np.testing.assert_array_equal(one, other)


def grown(tmp_path: Path, options: dict[str, Any], sizes: tuple[int, ...]) -> tuple[Any, Any]:
    """Return a store that grew by appended tables, and one made anew of its rows in its order."""
    tables = [frame(rows, seed) for seed, rows in enumerate(sizes, 1)]
    path = tmp_path / "grown.zarr"
    made(tables[0], path, formula=FORMULA, **options)
    for seed, table in enumerate(tables[1:], 2):
        append(table, path, seed=seed)
    store = open_store(path)
    order = store.row_ids()
    assert order is not None
    every = pd.concat(tables, ignore_index=True).iloc[order]
    wanted = {name: value for name, value in options.items() if name != "codes_above"}
    wanted["chunk_rows"] = store.layout.chunk_rows
    return store, made(every, tmp_path / "anew.zarr", like=path, shuffle=False, **wanted)


@pytest.mark.parametrize("sizes", [(40_000, 30_000), (300, 200, 100), (CHUNK, 500, 40_000)])
@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
def test_the_store_is_that_made_anew_of_the_same_rows(
    tmp_path: Path, options: dict[str, Any], sizes: tuple[int, ...]
) -> None:
    store, anew = grown(tmp_path, {**options, "chunk_rows": CHUNK}, sizes)
    assert sum(sizes) == store.n_rows
    assert_same_rows(anew, store)
    assert verify(store.address)["ok"]
    assert store.attributes.get("codes") == anew.attributes.get("codes")
    assert ("codes" in store.attributes) == ("codes_above" not in options)
    assert (store.layout.shards is None) == ("layout" not in options)
    at = np.random.default_rng(1).integers(0, store.n_rows, 500)
    for one, other in zip(gathered(anew, at), gathered(store, at), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
def test_the_store_as_it_was_is_read_from_the_files_of_today(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    path = tmp_path / "s.zarr"
    before = made(frame(40_000, 1), path, formula=FORMULA, **options, chunk_rows=CHUNK)
    kept = rows_of(before)
    append(frame(30_000, 2), path)
    earlier = open_store(path).earlier(before.fingerprint)
    assert earlier is not None
    for one, other in zip(kept, rows_of(earlier), strict=True):
        np.testing.assert_array_equal(one, other)
    at = np.array([0, 39_999, 33_000])
    np.testing.assert_array_equal(kept[0][at], gathered(earlier, at).X)
    ids = earlier.row_ids(39_990)
    assert ids is not None
    assert 10 == len(ids)


def test_a_reader_that_forgets_later_rows_refuses_the_last_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.zarr"
    before = made(frame(40_000, 1), path, formula=FORMULA, layout="cloud", chunk_rows=CHUNK)
    append(frame(30_000, 2), path)
    earlier = open_store(path).earlier(before.fingerprint)
    monkeypatch.setattr(
        "streammc.stores.rows.row_blocks.rows_of_chunk",
        lambda layout, chunk: min(layout.chunk_rows, layout.n_rows - chunk * layout.chunk_rows),
    )
    assert manifest.rows_of_chunk(earlier.layout, 1) > 40_000 - CHUNK
    with pytest.raises(StoreError, match="expected 4 pieces in the shard"):
        rows_of(earlier)


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
def test_control_variates_and_draws_are_those_of_the_store_made_anew(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    path = tmp_path / "s.zarr"
    first = made(frame(40_000, 1), path, formula=FORMULA, **options, chunk_rows=CHUNK)
    before = compute(first, MODEL)
    append(frame(400, 2), path, seed=2)
    store = open_store(path)
    after = update(before, store, MODEL)
    assert after.certificate.update is not None
    assert after.certificate.update["kept"]
    assert 400 == after.certificate.rows_read
    whole_pass = compute(store, MODEL)
    sd = whole_pass.posterior_sd()
    mode = whole_pass.theta_star + whole_pass.newton_step
    distance = np.linalg.solve(whole_pass.factor, after.theta_star + after.newton_step - mode)
    assert np.linalg.norm(distance) < 0.05 * np.sqrt(after.dim)
    assert sd.shape == after.posterior_sd().shape
    order = store.row_ids()
    every = pd.concat([frame(40_000, 1), frame(400, 2)], ignore_index=True).iloc[order]
    wanted = {name: value for name, value in options.items() if name != "codes_above"}
    wanted["chunk_rows"] = CHUNK
    anew = made(every, tmp_path / "anew.zarr", like=path, shuffle=False, **wanted)
    draws = [
        streammc.sample(
            data,
            MODEL,
            sampler=streammc.samplers.hmc_ecs(),
            draws=30,
            warmup=30,
            chains=1,
            seed=5,
            audit=False,
        )["posterior"]["beta"].values
        for data in (store, anew)
    ]
    np.testing.assert_array_equal(*draws)


def test_sums_by_level_of_new_rows_are_added_to_dense_ones(tmp_path: Path) -> None:
    from streammc.control_variates.full_pass.block_pass import ExpansionPass

    path = tmp_path / "s.zarr"
    first = made(frame(5000, 1), path, formula=FORMULA, chunk_rows=4096)
    before = compute(first, MODEL)
    append(frame(200, 2), path)
    store = open_store(path)
    (block, *_) = [piece for block in store.blocks() for piece in block.pieces()]
    assert isinstance(block.X, CodedMatrix)
    after = update(before, store, MODEL)
    task = ExpansionPass(
        MODEL, after.theta_star, after.score_draws, after.order, len(after.candidates), True
    )
    log_lik, gradient, hessian = store.reduce(task, scheduler="sync").expansion(after.dim)
    size = np.abs(hessian).max()
    assert log_lik == pytest.approx(after.log_lik, rel=1e-13)
    np.testing.assert_allclose(gradient, after.gradient, rtol=0, atol=1e-12 * size)
    np.testing.assert_allclose(hessian, after.hessian, rtol=0, atol=1e-12 * size)


def test_a_new_level_of_a_coded_factor_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    before = made(frame(300, 1), path, formula=FORMULA, layout="cloud")
    with pytest.raises(DataError, match="levels that were there when the formula was fitted"):
        append(frame(100, 2).assign(g="another"), path)
    assert [path] == list(tmp_path.iterdir())
    assert before.fingerprint == open_store(path).fingerprint
