"""Formats of the past are read the same, those of the future are refused: check 27."""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from checks_of_trust import JOB
from command_line import snapshot, streammc
from tampering import edit

from streammc.errors import StoreError
from streammc.trace.zarr_files import seal, unseal

sys.path.insert(0, str(Path(__file__).resolve().parent))
import make_golden

Recorded = Callable[[str, object], None]
ARCHIVES = sorted(Path(__file__).resolve().parent.glob("format-*.tar.xz"))
COMMANDS = {
    "store": ("info {0}", "verify {0}", "summarize {0} -o new --model logistic", "score run {0}"),
    "shards": ("info {0}", "summarize {0} -o new --model logistic"),
    "cv": (
        "info {0}",
        "verify {0}",
        f"sample store -o new --control-variates {{0}} {' '.join(JOB)}",
    ),
    "run": ("info {0}", "verify {0}", "diagnose {0}", "resume {0}", "predict {0} store -o new"),
    "predictions": ("info {0}", "verify {0}"),
}


@pytest.fixture
def golden(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results of a released format, in the current folder."""
    with tarfile.open(getattr(request, "param", ARCHIVES[-1])) as tar:
        tar.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.trust(27)
@pytest.mark.parametrize("golden", ARCHIVES, ids=lambda path: path.name, indirect=True)
def test_results_of_a_released_format_are_read_the_same(
    golden: Path, record_property: Recorded
) -> None:
    before = snapshot(golden)
    assert json.loads((golden / "expected.json").read_text()) == make_golden.read(golden)
    assert before == snapshot(golden)
    record_property("figure", f"{len(ARCHIVES)} released format: 5 of 5 results read the same")


def newer(kind: str, golden: Path) -> None:
    """Make a result one of the next format, with right checksums."""
    if kind in ("store", "shards"):

        def advance(document: dict) -> None:
            document["attributes"]["streammc"]["format"] += 1

        edit(golden / kind, "zarr.json", advance)
        return
    root = golden / kind / "zarr.json"
    document = json.loads(root.read_text())
    attributes, own = unseal(root.read_bytes(), root)
    own["format"] += 1
    nodes = document.get("consolidated_metadata", {}).get("metadata")
    root.write_bytes(seal(attributes, own, nodes))


@pytest.mark.trust(27, caught="a number of the format that is one higher")
@pytest.mark.parametrize("kind", COMMANDS)
def test_a_result_of_a_later_format_is_refused_and_not_written(
    kind: str, golden: Path, record_property: Recorded
) -> None:
    newer(kind, golden)
    before = snapshot(golden)
    for words in COMMANDS[kind]:
        done = streammc(*words.format(kind).split())
        assert 65 == done.code, (words, done.out, done.err)
        assert "format" in done.out + done.err, (words, done)
        assert 1 == len(done.err.splitlines())
        assert before == snapshot(golden), words
    record_property("figure", f"{kind} of format 2: {len(COMMANDS[kind])} commands refuse it")


@pytest.mark.parametrize("kept", [0, 1, 45, 500])
def test_a_document_that_was_cut_is_damaged_and_a_foreign_one_is_not(kept: int) -> None:
    whole = seal({"name": "x" * 600}, {"format": 1})
    assert "x" * 600 == unseal(whole, Path("run"))[0]["name"]
    with pytest.raises(StoreError, match="the file is damaged"):
        unseal(whole[:kept], Path("run"))
    with pytest.raises(StoreError, match="found another file"):
        unseal(b"{}" + whole[:kept], Path("run"))


@pytest.mark.trust(27)
def test_a_store_with_an_unknown_codec_is_refused_by_its_name(golden: Path) -> None:
    def compress(document: dict) -> None:
        document["codecs"].append({"name": "future-codec", "configuration": {}})

    edit(golden / "store", "X/zarr.json", compress)
    before = snapshot(golden)
    done = streammc("summarize", "store", "-o", "new", "--model", "logistic")
    assert 65 == done.code, done.err
    assert "codec" in done.err
    assert before == snapshot(golden)


def test_the_golden_results_as_they_are_are_not_refused(golden: Path) -> None:
    shutil.copytree("store", "again")
    assert 0 == streammc("info", "again").code
    assert 0 == streammc("diagnose", "run").code
