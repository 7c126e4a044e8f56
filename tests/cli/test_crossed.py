"""Factors that cross, from a file to a report and predictions by commands."""

from __future__ import annotations

from pathlib import Path

import pyarrow.csv as csv
import pytest
from command_line import streammc
from crossed_tables import FORMULA, crossed_table

from streammc.stores.store import open_store
from streammc.trace.run_directory import RunDirectory

WAYS = ("--group-as", "user=crossed,item=crossed")
SHORT = ("--seed", "1", "--draws", "60", "--warmup", "40", "--chains", "2", "--quiet")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import pyarrow as pa

    monkeypatch.chdir(tmp_path)
    table, *_ = crossed_table("gaussian")
    csv.write_csv(pa.table(table), "t.csv")
    done = streammc("ingest", "t.csv", "t.zarr", "--formula", FORMULA, *WAYS)
    assert 0 == done.code, done.err
    assert "(1 | user), 40 levels; (1 | item), 25 levels" in done.out
    return tmp_path / "t.zarr"


def test_commands_go_from_a_file_to_effects_and_predictions(store: Path) -> None:
    done = streammc("sample", "t.zarr", "-o", "r", "--model", "gaussian", *SHORT)
    assert 0 == done.code, done.err
    assert "(1 | user), 40 levels" in streammc("info", "t.zarr").out
    assert "gaussian, effects of (1 | user) + (1 | item)" in streammc("info", "r").out
    assert 0 == streammc("verify", "t.zarr").code
    assert "icc[user]" in streammc("diagnose", "r").out
    done = streammc("effects", "r", "-o", "users.csv", "--factor", "user")
    assert 0 == done.code, done.err
    lines = Path("users.csv").read_text().splitlines()
    assert ['"group","effect","mean","sd","q5","q95","rows"', 41] == [lines[0], len(lines)]
    done = streammc("effects", "r", "-o", "m3.csv", "--factor", "item", "--group", "m3")
    assert 0 == done.code, done.err
    assert 121 == len(Path("m3.csv").read_text().splitlines())
    done = streammc("effects", "r", "-o", "none.csv")
    assert 1 == len(done.err.splitlines())
    assert "one of the factors that cross, user, item" in done.err
    assert not Path("none.csv").exists()
    done = streammc("predict", "r", "t.csv", "-o", "p.csv")
    assert 0 == done.code, done.err
    assert 601 == len(Path("p.csv").read_text().splitlines())


def test_appended_rows_have_new_levels_and_an_old_run_its_own(store: Path) -> None:
    assert 0 == streammc("sample", "t.zarr", "-o", "r", "--model", "gaussian", *SHORT).code
    assert 0 == streammc("effects", "r", "-o", "before.csv", "--factor", "user").code
    assert 0 == streammc("predict", "r", "t.csv", "-o", "p.csv").code
    header, *_ = Path("t.csv").read_text().splitlines()
    assert '"x","user","item","y"' == header
    Path("more.csv").write_text(f"{header}\n0.5,77,m3,1.0\n0.1,3,new one,0.2\n0.2,78,m1,0.1\n")
    done = streammc("ingest", "--append", "more.csv", "t.zarr")
    assert 0 == done.code, done.err
    assert "new levels   2 of user, 1 of item" in done.out
    assert 0 == streammc("verify", "t.zarr").code
    shown = streammc("info", "t.zarr").out
    assert "(1 | user), 42 levels; (1 | item), 26 levels" in shown
    done = streammc("ingest", "--append", "more.csv", "t.zarr")
    assert (0, 603) == (done.code, open_store("t.zarr").n_rows), done.err
    for words in ((), ("--store", "t.zarr")):
        done = streammc("effects", "r", "-o", "after.csv", "--factor", "user", *words)
        assert 0 == done.code, done.err
        assert Path("before.csv").read_text() == Path("after.csv").read_text()
    done = streammc("predict", "r", "t.csv", "-o", "p2.csv")
    assert 0 == done.code, done.err
    assert Path("p.csv").read_text() == Path("p2.csv").read_text()
    done = streammc("predict", "r", "t.zarr", "-o", "p3.csv")
    assert 0 == done.code, done.err
    assert "rows of new groups  3" in done.out
    done = streammc("sample", "t.zarr", "-o", "r", "--model", "gaussian", *SHORT)
    assert (78, 1) == (done.code, len(done.err.splitlines()))
    assert "choose another output and give that run as --start-from, or continue" in done.err
    words = ("sample", "t.zarr", "-o", "r2", "--model", "gaussian", *SHORT, "--start-from", "r")
    done = streammc(*words)
    assert 0 == done.code, done.err
    sampler = RunDirectory.open("r2").identity["sampler"]
    assert {"name": "auto", "start_from": str(Path("r").resolve())} == sampler
    again = streammc(*words[:-3], "--start-from", "r")
    assert 0 == again.code
    assert "starts from the last draws of r" in again.err
    assert "nothing to do" in again.err
    assert 0 == streammc("effects", "r2", "-o", "u.csv", "--factor", "user").code
    assert 43 == len(Path("u.csv").read_text().splitlines())


def test_a_run_that_is_finished_or_not_has_a_report(store: Path) -> None:
    from report_page import Page

    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    done = streammc("sample", "t.zarr", "-o", "r", "--model", "gaussian", *SHORT)
    assert 0 == done.code, done.err
    for finished in (True, False):
        if not finished:
            opened = RunDirectory.open("r")
            with opened.lock():
                opened.extend(100)
                opened.set_attributes({"summary": None})
        assert 0 == streammc("diagnose", "r").code
        done = streammc("report", "r", "-o", f"{finished}.html", "--quiet")
        assert (0, "") == (done.code, done.err)
        page = Page(Path(f"{finished}.html").read_text(encoding="utf-8"))
        assert [] == page.faults
        assert "40 of user, 25 of item" in page.text
