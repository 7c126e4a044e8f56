"""What killed processes leave is found and removed, and nothing else: check 22."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from checks_of_trust import rounds
from command_line import snapshot, streammc

from streammc import models, open_store, sample
from streammc.errors import ConfigError
from streammc.stores.format.partial import PartialDirectory
from streammc.trace.debris import judged
from streammc.trace.lock import FILE, FOLDER
from streammc.trace.row_arrays import RowArrays
from streammc.unfinished import MARK, PREFIXES, mark, owner_of, state_of, this_process

Recorded = Callable[[str, object], None]
FOREIGN = (".DS_Store", "x.partial", "a.tmp", ".run.1.tmp", "empty", "zarr.json.partial")


def ended(folder: Path, **changes: object) -> Path:
    """Mark a folder as made by a process that has ended; or as ``changes`` say."""
    folder.mkdir(exist_ok=True, parents=True)
    done = subprocess.Popen(["true"])
    done.wait()
    owner = {**vars(this_process()), "pid": done.pid, **changes}
    (folder / (MARK + ".".join(str(each) for each in owner.values()))).touch()
    return folder


def gc(folder: Path, *words: str) -> tuple[set[str], set[str]]:
    """Return the paths that ``gc`` removed, or would, and those that it left alone."""
    done = streammc("gc", folder, *words, "--json")
    assert 0 == done.code, done.err
    found = done.json
    assert found["bytes"] == sum(each["bytes"] for each in found["removed"])
    return tuple(
        {os.path.relpath(each["path"], folder) for each in found[key]}
        for key in ("removed", "kept")
    )


def plant(folder: Path, generator: random.Random) -> set[str]:
    """Put debris of streammc, and files of others, into a folder; return the names of the first."""
    (folder / "data").mkdir()
    for where in (folder, folder / "data", folder / "store.zarr", folder / "run" / "posterior"):
        for name in generator.sample(FOREIGN, 4):
            (where / name).write_bytes(generator.choice([b"", b"mine"]))
    (folder / "data" / "mine.partial-77").mkdir()
    (folder / "data" / "mine.partial-77" / "thesis.txt").write_text("mine")
    shutil.copytree(folder / "store.zarr" / "y", folder / "data" / "y.pulling")  # a foreign array
    (folder / "data" / "streammc-run-abcdefgh").mkdir()
    made = {
        f"store.zarr.partial-{generator.randrange(10**6, 10**7)}",
        "data/.p.zarr.partial-99999999",
        "data/.cv.zarr.0123abcd.partial",
        "data/new.zarr.scratch.partial-99999999",
        "data/copy.zarr.pulling",
        "data/streammc-run-0_3b5c7d",
    }
    for name in made:
        ended(folder / name)
        (folder / name / "chunk").write_bytes(b"0" * 1000)
    old = time.time() - 3600
    files = {"run/.config.json.99999999.streammc-tmp", "data/.r.html.99999999.streammc-tmp"}
    for name in files:
        (folder / name).write_bytes(b"<html>" if "html" in name else b'{"a"')
        os.utime(folder / name, (old, old))
    commits = {"run/checkpoint/3.partial", "run/checkpoint/99.npz", "run/posterior/beta/c.0.77.0"}
    for name in commits:
        (folder / name).write_bytes(b"torn")
    replaced = "store.zarr.partial-99999999.old"
    shutil.copytree(folder / "store.zarr", folder / replaced)
    return made | files | commits | {replaced}


@pytest.mark.trust(22)
def test_gc_lists_and_removes_what_streammc_left_and_nothing_else(
    finished: Path, tmp_path: Path, record_property: Recorded
) -> None:
    for number in range(tried := rounds(2, 10)):
        folder = tmp_path / str(number)
        shutil.copytree(finished, folder)
        run = streammc("verify", folder / "run", "--json").json["digest"]
        made = plant(folder, random.Random(number))
        assert run == streammc("verify", folder / "run", "--json").json["digest"]
        before = snapshot(folder)
        assert (made, set()) == gc(folder, "--dry-run")
        assert before == snapshot(folder)
        assert (made, set()) == gc(folder)
        gone = {name for name in before if any(name == m or name.startswith(f"{m}/") for m in made)}
        assert set(before) - gone == set(snapshot(folder))
        assert (set(), set()) == gc(folder)
        assert run == streammc("verify", folder / "run", "--json").json["digest"]
        assert 0 == streammc("info", folder / "store.zarr").code
    record_property("figure", f"{tried} of {tried} folders: 12 pieces listed, the rest left")


@pytest.mark.trust(22)
def test_a_replaced_result_that_may_be_the_only_copy_is_kept(
    finished: Path, tmp_path: Path
) -> None:
    unfinished, replaced = "store.zarr.partial-99999999", "store.zarr.partial-99999999.old"
    for name in (unfinished, replaced):
        shutil.copytree(finished / "store.zarr", tmp_path / name)
    assert ({unfinished}, {replaced}) == gc(tmp_path)
    shutil.copytree(finished / "store.zarr", tmp_path / "store.zarr")
    assert ({replaced}, set()) == gc(tmp_path)


@pytest.mark.trust(22)
def test_a_name_alone_proves_nothing(tmp_path: Path, record_property: Recorded) -> None:
    folder = tmp_path / "store.zarr.partial-99999999"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    with judged(folder) as found:
        assert found is None
    ended(folder)
    with judged(folder) as found:  # the partner: with a mark the same folder is debris
        assert found is not None
        assert found.kept is None
    record_property("caught", "a folder of another program with the name of an unfinished store")


@pytest.mark.trust(22)
def test_a_folder_of_a_living_process_or_of_another_machine_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "a.zarr.partial-1"
    mine.mkdir()
    mark(mine)
    ended(tmp_path / "b.zarr.partial-1", host="another")
    ended(tmp_path / "c.zarr.partial-1", namespace="1")
    ended(tmp_path / "d.zarr.partial-1", boot="0-0")  # of this host: nobody lives since then
    ended(tmp_path / "e.zarr.partial-1", pid=os.getpid(), started="0")  # the number is used again
    left = {f"{name}.zarr.partial-1" for name in "abc"}
    assert ({"d.zarr.partial-1", "e.zarr.partial-1"}, left) == gc(tmp_path)


@pytest.mark.trust(22)
def test_what_a_writer_has_locked_is_left_alone(tmp_path: Path) -> None:
    store, run = tmp_path / "s.zarr", tmp_path / "run"
    (run / FOLDER).mkdir(parents=True)
    (run / FOLDER / FILE).touch()
    partial = PartialDirectory(store, ["X"])
    with RowArrays(tmp_path / "p", ["mean"], 4, 4) as rows:
        names = {partial.root.name, rows.folder.name}
        assert ({"run"}, names) == gc(tmp_path)
    partial.discard()
    assert [] == os.listdir(tmp_path)


def test_the_only_copy_of_a_replaced_store_is_left_alone(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "store.zarr", tmp_path / "s.zarr.partial-99999999.old")
    assert (set(), {"s.zarr.partial-99999999.old"}) == gc(tmp_path)
    shutil.copytree(finished / "store.zarr", tmp_path / "s.zarr")
    assert ({"../s.zarr.partial-99999999.old"}, set()) == gc(tmp_path / "s.zarr")


OUTPUTS = (
    ("ingest", "{data}", "-o", "{out}", "--response", "y"),
    ("simulate", "logistic", "{out}", "--rows", "50", "--dim", "2", "--seed", "1"),
    ("sample", "{place}/store.zarr", "-o", "{out}", "--model", "logistic", "--seed", "1"),
    ("summarize", "{place}/store.zarr", "-o", "{out}", "--model", "logistic"),
    ("predict", "{place}/run", "{place}/store.zarr", "-o", "{out}"),
    ("report", "{place}/run", "-o", "{out}"),
    ("score", "{place}/run", "{place}/store.zarr", "-o", "{out}"),
)


@pytest.mark.parametrize("words", OUTPUTS, ids=[words[0] for words in OUTPUTS])
@pytest.mark.parametrize("name", ["x.partial-7", ".x.0123abcd.partial.old"])
def test_an_output_with_the_name_of_an_unfinished_one_is_refused(
    words: tuple[str, ...], name: str, finished: Path, tmp_path: Path
) -> None:
    out, data = tmp_path / name, tmp_path / "data.csv"
    data.write_text("x,y\n1,0\n2,1\n")
    given = [word.format(out=out, data=data, place=finished) for word in words]
    if words[0] == "ingest":
        given.remove("-o")
    done = streammc(*given, "--quiet")
    assert 2 == done.code, done.err
    assert "expected a name of its own for the output" in done.err
    assert [data.name] == os.listdir(tmp_path)


def test_a_run_of_the_python_interface_is_refused_before_any_pass(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(finished / "store.zarr")
    monkeypatch.setattr("streammc.runs.job.chosen", None)
    with pytest.raises(ConfigError, match="expected a name of its own"):
        sample(store, models.logistic(), path=tmp_path / "x.partial-7", seed=1)
    assert [] == os.listdir(tmp_path)


@pytest.mark.trust(22)
def test_whole_results_of_a_user_with_such_names_are_left_alone(
    finished: Path, tmp_path: Path
) -> None:
    mine, run, left = (tmp_path / f"store.zarr.partial-{number}" for number in "789")
    for folder in (mine, left):
        shutil.copytree(finished / "store.zarr", folder)
    shutil.copytree(finished / "run", run)
    mine.with_name(f"{mine.name}.config.json").write_text("{}")
    before = snapshot(mine), snapshot(run)
    assert ({left.name}, set()) == gc(tmp_path)  # the partner: without a receipt it is debris
    copied = shutil.copytree(finished / "store.zarr", left)
    PartialDirectory(tmp_path / "store.zarr", []).discard()
    assert not copied.exists()
    assert before == (snapshot(mine), snapshot(run))


@pytest.mark.trust(22)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_temporary_folder_of_every_prefix_goes_as_a_whole(prefix: str, tmp_path: Path) -> None:
    name = f"{prefix}0_3b5c7d"
    ended(tmp_path / name)
    (tmp_path / name / "0" / "run" / FOLDER).mkdir(parents=True)
    (tmp_path / name / "0" / "run" / FOLDER / FILE).touch()
    (tmp_path / f"{prefix}01234567").mkdir()
    mark(tmp_path / f"{prefix}01234567")
    assert ({name}, {f"{prefix}01234567"}) == gc(tmp_path)
    assert [f"{prefix}01234567"] == os.listdir(tmp_path)


def test_gc_does_not_follow_links(tmp_path: Path) -> None:
    ended(tmp_path / "away" / "s.zarr.partial-1")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "away")
    (tmp_path / "here" / "s.zarr.partial-1").symlink_to(tmp_path / "away" / "s.zarr.partial-1")
    assert (set(), set()) == gc(tmp_path / "here")


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert 66 == streammc("gc", tmp_path / "nowhere").code
    assert 65 == streammc("gc", tmp_path / "file").code


@pytest.mark.parametrize("name", ["", "1", "x.1.2.3.h", "1.1.0-0.1", "1.1.boot.1.h"])
def test_a_foreign_mark_is_none(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{MARK}{name}").touch()
    assert owner_of(tmp_path) is None


def test_a_mark_with_content_is_none(tmp_path: Path) -> None:
    (tmp_path / f"{MARK}1.1.0-0.1.h").write_text("mine")
    assert owner_of(tmp_path) is None


def test_a_mark_names_the_process_that_made_it(tmp_path: Path) -> None:
    mark(tmp_path)
    owner = owner_of(tmp_path)
    assert owner == this_process()
    assert "alive" == state_of(this_process())


SESSION = """
import os, signal, streammc
from streammc import demo_data
store = streammc.from_table(demo_data.path(), response="signal", features=["m_bb"], seed=1)
run = streammc.sample(store, streammc.models.logistic(), chains=1, seed=1, draws=50, warmup=50)
print(os.listdir(os.environ["TMPDIR"]), flush=True)
if {killed}:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.trust(22)
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.slow
def test_a_python_session_leaves_nothing_or_what_gc_finds(killed: bool, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SESSION.format(killed=killed)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (-signal.SIGKILL if killed else 0) == done.returncode, done.stderr
    assert "streammc-run-" in done.stdout
    assert killed == bool(os.listdir(tmp_path))
    found, left = gc(tmp_path)
    assert (killed, set()) == (bool(found), left)
    assert [] == os.listdir(tmp_path)
