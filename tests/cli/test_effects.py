"""``streammc effects``: the effects of the groups of a run on a store with groups."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from command_line import snapshot, streammc

EFFECTS = ("effects", "groups-run", "-o", "e.zarr")
SAMPLE = ("--model", "logistic", "--sampler", "hmc", "--seed", "1", "--draws", "40", "--warmup")


@pytest.fixture(scope="session")
def groups_made(tmp_path_factory):
    """Folder with groups.zarr, of 12 carriers, and groups-run, finished."""
    folder = tmp_path_factory.mktemp("groups")
    rng = np.random.default_rng(1)
    carrier = rng.integers(0, 12, 600)
    late = rng.random(600) < np.where(carrier < 6, 0.2, 0.8)
    rows = zip(late.astype(int), rng.normal(size=600), carrier, strict=True)
    text = "late,x,carrier\n" + "".join(f"{y},{x:.4f},C{c:02d}\n" for y, x, c in rows)
    (folder / "t.csv").write_text(text)
    words = ("--formula", "late ~ x + (1 | carrier)", "--quiet")
    assert streammc("ingest", folder / "t.csv", folder / "groups.zarr", *words).code == 0
    run = ("sample", folder / "groups.zarr", "-o", folder / "groups-run", *SAMPLE, "40", "--quiet")
    done = streammc(*run)
    assert done.code == 0, done.err
    return folder


@pytest.fixture
def groups_run(groups_made, tmp_path, monkeypatch):
    """The run, in the current folder; its store stays where it was made."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(groups_made / "groups-run", tmp_path / "groups-run")
    return tmp_path / "groups-run"


def test_effects_are_written_by_label(groups_run):
    result = streammc(*EFFECTS, "--json", "--quiet")
    assert result.code == 0, result.err
    assert (result.json["groups"], result.json["draws"]) == (12, 100)
    assert result.json["effects"] == ["Intercept"]
    import xarray as xr

    found = xr.open_zarr("e.zarr").load()
    assert found["mean"].sizes == {"group": 12, "effect": 1}
    assert sorted(found["group"].values) == [f"C{k:02d}" for k in range(12)]
    for k in range(12):
        mean = found["mean"].sel(group=f"C{k:02d}", effect="Intercept")
        assert (mean < 0) == (k < 6)
    assert int(found["rows"].sum()) == 600
    info, verify = streammc("info", "e.zarr", "--json"), streammc("verify", "e.zarr", "--json")
    assert (info.json["kind"], info.json["group"]) == ("group-effects", "carrier")
    assert (verify.json["ok"], verify.code) == (True, 0)


def test_effects_print_less_than_ten_lines(groups_run):
    result = streammc(*EFFECTS)
    assert result.code == 0
    assert "12 of carrier" in result.out
    assert len(result.out.splitlines()) < 10


def test_same_effects_again_do_nothing_and_others_need_overwrite(groups_run):
    first = streammc(*EFFECTS, "--json", "--quiet")
    before = snapshot(groups_run.parent / "e.zarr")
    again = streammc(*EFFECTS, "--json")
    assert first.json == again.json
    assert "nothing to do" in again.err
    assert before == snapshot(groups_run.parent / "e.zarr")
    other = streammc(*EFFECTS, "--effect-draws", "50")
    assert other.code == 78
    assert "or replace it with --overwrite" in other.err
    assert streammc(*EFFECTS, "--effect-draws", "50", "--overwrite", "--quiet").code == 0


def test_damaged_effects_are_found_by_verify(groups_run):
    assert streammc(*EFFECTS, "--quiet").code == 0
    chunk = next((groups_run.parent / "e.zarr" / "sd").glob("c.*"))
    data = bytearray(chunk.read_bytes())
    data[20] ^= 4
    chunk.write_bytes(data)
    assert streammc("verify", "e.zarr").code == 65


def test_store_that_moved_is_given_and_another_is_refused(groups_made, groups_run, run):
    shutil.copytree(groups_made / "groups.zarr", "moved.zarr")
    assert streammc(*EFFECTS, "--store", "moved.zarr", "--quiet").code == 0
    other = streammc("effects", "groups-run", "-o", "f.zarr", "--store", "store.zarr")
    assert other.code == 78
    assert "expected the store of the run" in other.err
    inside = streammc("effects", "groups-run", "-o", "moved.zarr/e", "--store", "moved.zarr")
    assert inside.code == 2


DRAWS = (*EFFECTS, "--group", "C03", "--group", "C09", "--draws", "60", "--seed", "4")


def test_draws_of_named_groups_are_written_by_label(groups_run):
    result = streammc(*DRAWS, "--json", "--quiet")
    assert result.code == 0, result.err
    assert (result.json["groups"], result.json["chains"], result.json["draws"]) == (2, 4, 15)
    import xarray as xr

    found = xr.open_zarr("e.zarr").load()
    assert found["u"].sizes == {"group": 2, "chain": 4, "draw": 15, "effect": 1}
    assert found["u"].sel(group="C03").mean() < 0 < found["u"].sel(group="C09").mean()
    assert "nothing to do" in streammc(*DRAWS).err
    told = streammc(*DRAWS[:-4], "--overwrite")
    assert told.code == 0
    assert "2 of carrier" in told.out
    assert len(told.out.splitlines()) < 10
    info, verify = streammc("info", "e.zarr", "--json"), streammc("verify", "e.zarr", "--json")
    assert (info.json["kind"], info.json["draws"]) == ("group-effects", 40)
    assert (verify.json["ok"], verify.code) == (True, 0)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--group", "C3"), "found 'C3', which is none: did you mean 'C"),
        (("--group", "C\n" + 3000 * "x"), "which is none: give one of its labels"),
        (("--draws", "50"), "expected --group with --draws"),
        (("--seed", "5"), "expected --group with --seed"),
        (("--group", "C03", "--interval", "0.5"), "expected no --group with --interval"),
        (("--group", "C03", "--effect-draws", "50"), "expected no --group with --effect-draws"),
    ],
)
def test_draws_that_cannot_be_made_are_refused_in_one_line(groups_run, words, expected):
    before = snapshot(groups_run.parent)
    result = streammc(*EFFECTS, *words)
    assert result.code == 2
    lines = result.err.strip().splitlines()
    assert len(lines) == 1
    assert len(lines[0]) < 400
    assert expected in lines[0]
    assert snapshot(groups_run.parent) == before


def test_run_without_groups_is_refused(run):
    result = streammc("effects", "run", "-o", "e.zarr", "--store", "store.zarr")
    assert result.code == 2
    assert "expected a run of a mixed model, found one of 'logistic' without groups" in result.err


def test_effects_are_taken_for_no_run_and_no_store(groups_run):
    assert streammc(*EFFECTS, "--quiet").code == 0
    for words in (("diagnose", "e.zarr"), ("summarize", "e.zarr", "--model", "logistic")):
        result = streammc(*words)
        assert result.code == 65
        assert "found group effects" in result.err
