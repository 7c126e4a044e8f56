"""Flipped bits, cut files, missing and swapped objects: checks 20 and 21."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks_of_trust import JOB, rounds
from command_line import streammc

from streammc.control_variates import compute
from streammc.control_variates.expansion import ControlVariates
from streammc.errors import StoreError
from streammc.models import logistic
from streammc.stores import open_store
from streammc.stores.ingest.ingestion import ingest
from streammc.trace.datatree import open_rows, open_run
from streammc.trace.run_directory import RunDirectory

Recorded = Callable[[str, object], None]
ROWS = 32 * 4096
"""Rows of 32 chunks: with those of the response 64 objects, and some documents."""


def table(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=ROWS)
    return {"x": x, "y": (rng.random(ROWS) < 1 / (1 + np.exp(-x))).astype(np.int8)}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with one of each: stores of two layouts, control variates, a run, predictions."""
    folder = tmp_path_factory.mktemp("results")
    words = ("simulate", "logistic", folder / "store", "--rows", "10000", "--dim", "3")
    assert 0 == streammc(*words, "--seed", "5", "--chunk-rows", "4096", "--quiet").code
    ingest(table(2), folder / "shards", response="y", seed=1, chunk_rows=4096, layout="cloud")
    compute(open_store(folder / "store"), logistic()).save(folder / "cv")
    done = streammc("sample", folder / "store", "-o", folder / "run", *JOB, "--draws", "60")
    assert 0 == done.code, done.err
    run = folder / "run"
    words = ("predict", run, folder / "store", "-o", folder / "predictions", "--quiet")
    assert 0 == streammc(*words).code
    return folder


def of_store(path: Path) -> str:
    return compute(open_store(path), logistic(), scheduler="sync").digest()


def of_run(path: Path) -> str:
    run = RunDirectory.open(path)
    tree = open_run(path).load()
    arrays, meta = run.checkpoint() or ({}, {})
    values = {name: array.tolist() for name, array in arrays.items()}
    return repr(
        (run.digest(), run.attributes, meta, values, float(tree["posterior"]["beta"].sum()))
    )


def of_predictions(path: Path) -> str:
    found = open_rows(path, verify=True).load()
    return repr({str(name): found[name].values.tolist() for name in found.variables})


READ: dict[str, Callable[[Path], str]] = {
    "store": of_store,
    "shards": of_store,
    "cv": lambda path: ControlVariates.open(path).digest(),
    "run": of_run,
    "predictions": of_predictions,
}


def objects(path: Path) -> list[Path]:
    """Return the files of a result; without those that no reader uses."""
    unused = ("lock", "config.json")
    files = sorted(each for each in path.rglob("*") if each.is_file() and each.name not in unused)
    # Control variates are a kind of their own here.
    return [each for each in files if "control-variates.zarr" not in each.parts]


@pytest.mark.trust(20)
@pytest.mark.slow
def test_a_damaged_object_is_refused_by_name_or_changes_nothing(
    results: Path, tmp_path: Path, record_property: Recorded
) -> None:
    shutil.copytree(results, tmp_path, dirs_exist_ok=True)
    right = {kind: read(tmp_path / kind) for kind, read in READ.items()}
    generator, found = random.Random(1), Counter[str]()
    for number in range(rounds(60, 400)):
        kind = list(READ)[number % len(READ)]
        where = generator.choice(objects(tmp_path / kind))
        good = where.read_bytes()
        if number % 4 == 3:
            where.write_bytes(good[: generator.randrange(len(good))])
        else:
            bad = bytearray(good)
            bad[generator.randrange(len(bad))] ^= 1 << generator.randrange(8)
            where.write_bytes(bad)
        try:
            same = READ[kind](tmp_path / kind) == right[kind]
            found["harmless" if same else f"wrong: {where}"] += 1
        except StoreError as error:
            named = where.name in str(error) or where.parent.name in str(error)
            found["refused" if named or kind in str(error) else f"unnamed: {error}"] += 1
        where.write_bytes(good)
    tried = sum(found.values())
    assert {"refused", "harmless"} >= set(found), found
    assert found["refused"] > tried / 2
    record_property(
        "figure",
        f"{tried} of {tried} damaged objects of 5 kinds: {found['refused']} refused, "
        f"{found['harmless']} harmless, 0 wrong numbers",
    )


@pytest.mark.trust(20)
def test_without_checksums_flipped_bits_are_wrong_numbers(
    tmp_path: Path, record_property: Recorded
) -> None:
    import zarr

    rows = np.random.default_rng(1).normal(size=(4096, 4))
    array = zarr.create_array(tmp_path / "plain.zarr", data=rows, chunks=(4096, 4))
    (chunk,) = [each for each in (tmp_path / "plain.zarr" / "c").rglob("*") if each.is_file()]
    good, generator, wrong = chunk.read_bytes(), random.Random(1), 0
    for _ in range(tried := 50):
        bad = bytearray(good)
        bad[generator.randrange(64, len(bad))] ^= 1 << generator.randrange(8)
        chunk.write_bytes(bad)
        try:
            wrong += not np.array_equal(rows, array[:])
        except Exception:  # any error of the codec is a refusal
            continue
    assert wrong > tried / 2
    record_property("caught", f"zarr without checksums: {wrong} of {tried} flips are wrong numbers")


@pytest.fixture(scope="module")
def chunked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store of over 64 objects, and the one that it replaced."""
    folder = tmp_path_factory.mktemp("chunked")
    for name, seed in (("new", 1), ("old", 2)):
        ingest(table(seed), folder / name, response="y", shuffle=False, chunk_rows=4096)
    return folder / "new", folder / "old"


def refused(store: Path, run: Path) -> bool:
    """Return whether a damaged store ends ``sample`` with exit code 65, before any draw."""
    words = ("--model", "logistic", "--seed", "1", "--chains", "1", "--draws", "5", "--warmup", "5")
    done = streammc("sample", store, "-o", run, *words, "--sampler", "hmc", "--quiet")
    assert "Traceback" not in done.err
    drawn = RunDirectory.exists(run) and RunDirectory.open(run).generation > 0
    shutil.rmtree(run, ignore_errors=True)
    return done.code == 65 and len(done.err.splitlines()) == 1 and not drawn


@pytest.mark.trust(21)
@pytest.mark.slow
def test_missing_swapped_and_older_objects_are_refused_before_any_draw(
    chunked: tuple[Path, Path], tmp_path: Path, record_property: Recorded
) -> None:
    (_, old), store, run = chunked, tmp_path / "store", tmp_path / "run"
    shutil.copytree(chunked[0], store)
    assert not refused(store, run)
    generator = random.Random(1)
    every = sorted(each for each in store.rglob("*") if each.is_file())
    assert len(every) >= 64
    missing = rounds(8, 64)
    for where in generator.sample(every, missing):
        where.rename(tmp_path / "kept")
        assert refused(store, run), where
        (tmp_path / "kept").rename(where)
    chunks = sorted((store / "X").glob("c.*"))
    swaps = rounds(4, 32)
    for _ in range(swaps):
        one, two = generator.sample(chunks, 2)
        first, second = one.read_bytes(), two.read_bytes()
        one.write_bytes(second)
        two.write_bytes(first)
        assert refused(store, run), (one, two)
        one.write_bytes(first)
        two.write_bytes(second)
    for where in generator.sample(chunks, older := rounds(4, 32)):
        good = where.read_bytes()
        where.write_bytes((old / "X" / where.name).read_bytes())
        assert refused(store, run), where
        where.write_bytes(good)
    assert not refused(store, run)
    record_property(
        "figure",
        f"{missing} of {missing} missing, {swaps} of {swaps} swapped and {older} of {older} older "
        "objects of a store refused before any draw",
    )


@pytest.mark.trust(21)
def test_a_reader_of_zarr_alone_takes_a_missing_chunk_for_zeros(
    chunked: tuple[Path, Path], tmp_path: Path, record_property: Recorded
) -> None:
    import zarr

    store = tmp_path / "store"
    shutil.copytree(chunked[0], store)
    (store / "X" / "c.3.0").unlink()
    values = zarr.open_group(store, mode="r")["X"][3 * 4096 : 4 * 4096]
    assert not values.any()
    assert refused(store, tmp_path / "run")
    record_property("caught", "a missing chunk, which zarr alone reads as 4,096 rows of zeros")
