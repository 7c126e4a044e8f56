"""``streammc export``: a run as a file that predicts alone."""

from __future__ import annotations

import numpy as np
from command_line import streammc

from streammc import scorer


def test_a_run_is_exported_once(run):
    first = streammc("export", "run", "model.json", "--json", "--quiet")
    assert 0 == first.code, first.err
    facts = first.json
    assert ("logistic", "logit", "draws", None) == tuple(
        facts[name] for name in ("family", "link", "kind", "groups")
    )
    table = {name: np.zeros(3) for name in facts["columns"]}
    assert (3,) == scorer.load("model.json").predict(table)["mean"].shape
    again = streammc("export", "run", "model.json", "--json")
    assert first.json == again.json
    assert "nothing to do" in again.err
    other = streammc("export", "run", "model.json", "--draws", "10")
    assert (78, True) == (other.code, "or replace it with --overwrite" in other.err)
    assert 0 == streammc("export", "run", "model.json", "--draws", "10", "--overwrite").code
    assert "10 draws" in repr(scorer.load("model.json"))


def test_other_files_and_folders_are_left(run):
    (run.parent / "notes.json").write_text("{}")
    for words in ((), ("--overwrite",)):
        done = streammc("export", "run", "notes.json", *words)
        assert (78, "{}") == (done.code, (run.parent / "notes.json").read_text())
        assert "--overwrite" not in done.err
    done = streammc("export", "run", "nowhere/model.json")
    assert (73, True) == (done.code, "expected an existing folder" in done.err)
