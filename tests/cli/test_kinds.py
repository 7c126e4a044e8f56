"""An argument that is given the wrong kind of folder names that kind and the right one."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr
from command_line import streammc

from streammc.trace.row_arrays import GROUPS, RowArrays

STORE = "a store"
RUN = "a run"
EXPANSION = "control variates"
ANY = "a store, a run, control variates, predictions or group effects"
MODEL = ("--model", "logistic")
COMMANDS = {
    "sample": (STORE, ("sample", "AT", "-o", "out", *MODEL)),
    "sample --dry-run": (STORE, ("sample", "AT", "-o", "out", *MODEL, "--dry-run")),
    "summarize": (STORE, ("summarize", "AT", "-o", "out", *MODEL)),
    "predict run": (STORE, ("predict", "run", "AT", "-o", "out")),
    "ingest --like": (STORE, ("ingest", "file", "out", "--like", "AT")),
    "predict": (RUN, ("predict", "AT", "store", "-o", "out")),
    "export": (RUN, ("export", "AT", "out")),
    "effects": (RUN, ("effects", "AT", "-o", "out")),
    "effects --store": (STORE, ("effects", "run", "--store", "AT", "-o", "out")),
    "resume": (RUN, ("resume", "AT")),
    "diagnose": (RUN, ("diagnose", "AT")),
    "audit": (RUN, ("audit", "AT")),
    "score": (RUN, ("score", "AT")),
    "score run": (STORE, ("score", "run", "AT")),
    "compare": (RUN, ("compare", "AT", "run")),
    "compare run": (RUN, ("compare", "run", "AT")),
    "sample --control-variates": (
        EXPANSION,
        ("sample", "store", "-o", "out", *MODEL, "--control-variates", "AT"),
    ),
    "info": (ANY, ("info", "AT")),
    "verify": (ANY, ("verify", "AT")),
}
OURS = ("store", "run", "expansion", "predictions", "effects")
KINDS = {
    "store": STORE,
    "run": RUN,
    "expansion": EXPANSION,
    "predictions": "predictions",
    "effects": "group effects",
    "empty": "an empty folder",
    "full": "a folder without zarr.json",
    "file": "a file",
    "foreign": "a zarr group of another program",
    "foreign/x": "a zarr array",
    "old": "a zarr group of version 2",
    "missing": "nothing",
}
CASES = [
    (command, kind)
    for command, (wanted, _) in COMMANDS.items()
    for kind in KINDS
    if not (kind in OURS and wanted in (ANY, KINDS[kind]))
    and not (command == "predict run" and kind in ("full", "file"))  # read as tables
]


@pytest.fixture(scope="module")
def places(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds one of every kind."""
    folder = tmp_path_factory.mktemp("places")
    for name, source in (("store", "store.zarr"), ("run", "run")):
        shutil.copytree(made / source, folder / name)
    shutil.copytree(made / "run" / "control-variates.zarr", folder / "expansion")
    done = streammc("predict", folder / "run", folder / "store", "-o", folder / "predictions")
    assert 0 == done.code, done.err
    with RowArrays(folder / "effects", ["mean"], 1, 1, of=GROUPS) as writer:
        writer.target.write(0, {"mean": np.zeros(1)})
        writer.commit({})
    (folder / "empty").mkdir()
    for name, content in (("file", "y,x\n1,2\n"), ("full/t.csv", ""), ("old/.zgroup", "{}")):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    zarr.open_group(folder / "foreign", mode="w").create_array("x", shape=(3,), dtype="f4")
    return folder


@pytest.mark.parametrize(("command", "kind"), CASES)
def test_argument_given_the_wrong_kind_of_folder_names_that_kind(
    places: Path, monkeypatch: pytest.MonkeyPatch, command: str, kind: str
) -> None:
    monkeypatch.chdir(places)
    wanted, words = COMMANDS[command]
    done = streammc(*(kind if word == "AT" else word for word in words), "--quiet")
    assert (66 if kind == "missing" else 65) == done.code, done.err
    assert 1 == done.err.count("\n")
    assert f"expected {wanted} at" in done.err
    assert f"found {KINDS[kind]}: " in done.err
    assert not (places / "out").exists()


def test_the_store_of_a_run_is_named(places: Path, made: Path) -> None:
    done = streammc("summarize", places / "run", "-o", places / "out", *MODEL)
    assert f"give the store that was sampled (it was {str(made / 'store.zarr')!r})" in done.err


def test_a_file_is_answered_with_the_command_that_makes_a_store_of_it(places: Path) -> None:
    done = streammc("sample", places / "file", "-o", places / "out", *MODEL)
    assert f"'streammc ingest {places / 'file'} NAME.zarr'" in done.err


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("store", "a zarr store: it needs no ingesting"),
        ("run", "a run: give CSV, Parquet or Arrow files"),
        ("foreign", "a zarr group of another program: give CSV, Parquet or Arrow files"),
    ],
)
def test_ingest_names_a_path_that_is_no_table(places: Path, kind: str, found: str) -> None:
    done = streammc("ingest", places / kind, places / "out", "--response", "y")
    assert 65 == done.code
    assert f"found {found}" in done.err


def test_a_damaged_store_or_run_is_still_named_as_damaged(store: Path, run: Path) -> None:
    for place, words in ((run, ("diagnose", "run")), (store, ("info", "store.zarr"))):
        root = place / "zarr.json"
        root.write_bytes(root.read_bytes().replace(b"logistic", b"lOgistic", 1)[:-5])
        done = streammc(*words, "--quiet")
        assert 65 == done.code
        assert "zarr.json" in done.err
        assert "found a " not in done.err
