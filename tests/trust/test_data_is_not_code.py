"""Stores, runs, jobs, formulas and priors are data, and never run as code: check 51."""

from __future__ import annotations

import ast
import os
import shutil
import sys
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import streammc
from hostile_inputs import CODE, HOSTILE, JOB, SAMPLE, Planted

import streammc as package
from streammc.errors import StreammcError
from streammc.trace import commit
from streammc.trace.zarr_files import crc32c

Record = Callable[[str, object], None]
ROOT = Path(package.__file__).resolve().parents[1]
RUNS_CODE = {"eval", "exec", "compile", "__import__", "execfile"}
LOADERS = {"load", "loads", "Unpickler", "read_pickle", "full_load", "unsafe_load", "open"}
CODECS = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "yaml", "joblib", "jsonpickle"}


def findings(text: str) -> list[str]:
    """Return the calls of a source that could run data as code."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in CODECS:
            found += [f"{node.module}.{each.name}" for each in node.names if each.name in LOADERS]
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        before, _, last = name.rpartition(".")
        arguments = {word.arg: ast.unparse(word.value) for word in node.keywords}
        runs = name in RUNS_CODE or name in {f"builtins.{word}" for word in RUNS_CODE}
        loads = before.rpartition(".")[2] in CODECS and last in LOADERS
        arrays = name in {"np.load", "numpy.load"} and arguments.get("allow_pickle") != "False"
        allows = arguments.get("allow_pickle", "False") != "False"
        if runs or loads or arrays or allows or last == "read_pickle":
            found.append(name)
    return found


@pytest.mark.trust(51)
def test_no_source_loads_pickles_or_evaluates_text(record_property: Record) -> None:
    found: dict[tuple[str, str], int] = {}
    sources = sorted({path for name in ("streammc", "stores", "cli") for path in python(name)})
    for path in sources:
        for name in findings(path.read_text(encoding="utf-8")):
            key = (str(path.relative_to(ROOT)), name)
            found[key] = found.get(key, 0) + 1
    assert len(sources) > 300
    assert {} == found
    record_property("figure", f"{len(sources)} sources: no eval, exec, pickle or YAML of data")


def python(name: str) -> list[Path]:
    return [path for path in (ROOT / name).rglob("*.py") if not path.is_symlink()]


@pytest.mark.trust(51)
@pytest.mark.parametrize(
    "text",
    [
        "eval(formula)", "exec(code)", "pickle.load(file)", "import yaml\nyaml.load(text)",
        "from pickle import loads", "np.load(path)", "np.load(path, allow_pickle=True)",
        "pd.read_pickle(path)", "read(path, allow_pickle=flag)", "marshal.loads(data)",
        "compile(text, '', 'eval')", "__import__(name)", "shelve.open(path)",
    ],
)  # fmt: skip
def test_a_source_that_runs_data_is_found(text: str, record_property: Record) -> None:
    assert findings(text)
    record_property("caught", "a planted call such as eval(formula) in a source")


WATCHED = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pickle.find_class")
DEFINING = ("<frozen importlib", str(typing.__file__))
EVENTS: list[str] = []
WATCHING = [False]


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Note what runs code or connects; code of a module on disk is an import."""
    if not WATCHING[0]:
        return
    if event == "exec" and isinstance(arguments[0], types.CodeType):
        name = arguments[0].co_filename
        if os.path.isfile(name):
            if os.path.realpath(name).startswith(os.getcwd()):
                EVENTS.append(f"import {name}")
        elif not name.startswith("<frozen") and not importing():
            EVENTS.append(f"exec {name} {arguments[0].co_names}")
    elif event in WATCHED or event.startswith("socket."):
        EVENTS.append(f"{event} {arguments!r:.80}")


def importing() -> bool:
    """Return whether a module is imported, which may make named tuples, or annotations are read."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None and not frame.f_code.co_filename.startswith(DEFINING):
        frame = frame.f_back
    return frame is not None


@contextmanager
def watched() -> Iterator[list[str]]:
    """Note the events of a block."""
    EVENTS.clear()
    WATCHING[0] = True
    try:
        yield EVENTS
    finally:
        WATCHING[0] = False


UNREAD = ("run: settings are a pickle", "run: settings name code")
"""The settings beside a run are for people; no command reads them."""


@pytest.fixture(scope="module")
def seen(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Watch this process, after what is imported at the first use of every command."""
    sys.addaudithook(watch)
    here = tmp_path_factory.mktemp("seen")
    (here / "t.csv").write_text("y,a\n0,1\n1,2\n1,3\n")
    ingest = ("ingest", here / "t.csv", here / "new.zarr", "--formula", "y ~ log(a)", "--quiet")
    assert 0 == streammc(*ingest).code
    shutil.copytree(finished / "run", here / "run")
    assert 0 == streammc("resume", here / "run", "--draws", "70", "--quiet").code
    (here / "job.toml").write_text(JOB.format("logistic", "normal(0, 1)"))
    shutil.copytree(finished / "store.zarr", here / "store.zarr")
    checked = streammc("check", here / "job.toml")
    assert 0 == checked.code, checked.err


@pytest.mark.trust(51)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_is_refused_and_runs_nothing(
    name: str,
    seen: None,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Record,
) -> None:
    monkeypatch.chdir(tmp_path)
    for each in ("store.zarr", "run"):
        shutil.copytree(finished / each, tmp_path / each)
    (tmp_path / "t.csv").write_text("y,a\n0,1\n1,2\n1,3\n")
    plant, words = HOSTILE[name]
    plant(tmp_path)
    with watched() as events:
        done = streammc(*words)
    assert (0 == done.code) == (name in UNREAD), done.err
    assert 70 != done.code, done.err
    lines = [each for each in done.err.splitlines() if each.startswith("streammc: ")]
    refused = [each for each in lines if "warning: " not in each]
    assert len(refused) == (name not in UNREAD), refused
    assert [] == events
    assert not (tmp_path / "canary").exists()
    refused_of = f"{len(HOSTILE) - len(UNREAD)} of {len(HOSTILE)} hostile inputs refused"
    record_property("figure", f"{refused_of}, {len(UNREAD)} not read; no code ran")


@pytest.mark.trust(51)
def test_a_checkpoint_of_objects_with_the_right_checksum_is_refused(
    seen: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "checkpoint"
    meta = np.frombuffer(b"{}", dtype=np.uint8)
    with path.open("wb") as file:
        np.savez(file, **{"meta.json": meta, "array.a": np.array([Planted()], dtype=object)})
    content = path.read_bytes()
    with watched() as events, pytest.raises(StreammcError):
        commit.read_checkpoint(path, len(content), crc32c(content))
    assert [] == events
    assert not (tmp_path / "canary").exists()


@pytest.mark.trust(51)
def test_a_prior_that_is_evaluated_as_python_is_seen(
    seen: None,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Record,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished / "store.zarr", tmp_path / "store.zarr")
    monkeypatch.setattr("streammc.priors.parse_item", eval)
    with watched() as events:
        streammc(*SAMPLE, "--prior", CODE)
    assert (tmp_path / "canary").exists()
    assert {"exec", "os.system"} <= {event.split()[0] for event in events}
    record_property("caught", "a prior that is read by eval")
