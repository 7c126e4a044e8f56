"""Labels of groups that two tables write in different ways."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from command_line import streammc as command
from mixed_runs import draws_near, make_run

import streammc
from streammc import facts, from_arrays, from_table
from streammc.models import gaussian
from streammc.prediction.row_effects import LabelIndex, named_groups

rng = np.random.default_rng(1)
ROWS = 60
PLAIN = pd.DataFrame({"x": rng.normal(size=ROWS), "y": rng.normal(size=ROWS)})
NUMBERS = rng.integers(0, 4, ROWS)
TRUTHS = NUMBERS > 1
KINDS = {
    "numbers": NUMBERS,
    "floats": NUMBERS.astype(float),
    "texts of numbers": NUMBERS.astype(str),
    "booleans": TRUTHS,
    "texts of booleans": np.where(TRUTHS, "true", "false"),
}
FORMS = [("csv", "csv"), ("csv", "frame"), ("frame", "csv")]
ALIKE = [
    ((one, two), FORMS[(i + j) % 3])
    for names in (list(KINDS)[:3], list(KINDS)[3:])
    for i, one in enumerate(names)
    for j, two in enumerate(names)
]
"""Labels of the same groups; on either side every kind in every form."""


def table(folder, kind, form):
    """A frame, or a file of it."""
    frame = PLAIN.assign(g=KINDS[kind])
    if form == "frame":
        return frame
    frame.to_csv(folder / f"{kind}.csv", index=False)
    return folder / f"{kind}.csv"


def run_on(folder, source):
    data = from_table(source, formula="y ~ x + (1 | g)", seed=1)
    theta = draws_near([0.1, 0.2, 0.3, 0.4], 0.05)
    return data, make_run(folder / "r", gaussian(), data, theta)


@pytest.mark.parametrize(("kinds", "forms"), ALIKE)
def test_groups_are_known_whatever_wrote_their_labels(tmp_path, kinds, forms):
    sources = [table(tmp_path, *each) for each in zip(kinds, forms, strict=True)]
    data, run = run_on(tmp_path, sources[0])
    found = streammc.predict(run, from_table(sources[1], like=data), trained_on=data)
    own = streammc.predict(run, data).load().sortby("row_id")
    assert facts(found)["new_group_rows"] == 0
    assert "warnings" not in facts(found)
    np.testing.assert_allclose(found["mean"], own["mean"], rtol=1e-9)


def index_of(labels):
    groups = from_arrays(np.ones((len(labels), 1)), np.ones(len(labels)), groups=labels).groups
    own = groups.labels(0, groups.n_groups)
    return LabelIndex(groups), [each.decode() if own.dtype.kind == "S" else each for each in own]


def test_a_label_as_written_comes_before_other_spellings_of_it():
    index, own = index_of(np.array(["1", "1.0", "2.0", "x", "y"]))
    found = index.find(np.array([b"1", b"1.0", b"2", b"2.00", b"1.00", b"x.0", b"02", b"True"]))
    assert [own[k] if k >= 0 else None for k in found] == (
        ["1", "1.0", "2.0", "2.0", None, None, None, None]
    )
    assert own[index.find(np.array([2]))[0]] == "2.0"


def test_zeros_before_a_number_matter_only_between_texts():
    numbers, own = index_of(np.array([1, 7, 10]))
    found = numbers.find(np.array([b"01", b"007", b"10", b"010", b"011", b"07.0", b"0x7"]))
    assert [own[k] if k >= 0 else None for k in found] == [1, 7, 10, 10, None, 7, None]
    texts, own = index_of(np.array(["01", "07", "10", "1", "004", "04"]))
    found = texts.find(np.array([1, 7, 10, 4, -1]))
    assert [own[k] if k >= 0 else None for k in found] == ["1", "07", "10", None, None]
    assert texts.find(np.array([b"7", b"007"])).tolist() == [-1, -1]


def test_the_number_of_a_boolean_is_that_of_at_most_two_groups():
    two, own = index_of(np.array([0, 1]))
    found = two.find(np.array([b"True", b"FALSE", b"1.0", b"-0.0"]))
    assert [own[k] for k in found] == [1, 0, 1, 0]
    three, _ = index_of(np.array([0, 1, 2]))
    assert three.find(np.array([b"True", b"false"])).tolist() == [-1, -1]


def test_two_spellings_name_one_group_once():
    data = from_arrays(np.ones((9, 1)), np.ones(9), groups=np.arange(9) // 3)
    assert len(named_groups(data.groups, ["1", "2.0", "1.0"])) == 2


def test_mostly_new_groups_are_a_warning_with_a_label_of_each_table(tmp_path):
    data, run = run_on(tmp_path, table(tmp_path, "numbers", "frame"))
    other = PLAIN.assign(g=[f"no. {k}" for k in NUMBERS])
    other.loc[:9, "g"] = "1"
    line = "50 of 60 rows of 'memory' belong to groups that the run has not seen, such as 'no. "
    with pytest.warns(UserWarning, match=line):
        made = streammc.predict(run, from_table(other, like=data), trained_on=data)
    (found,) = facts(made)["warnings"]
    assert "; one of the run is '" in found
    other.loc[:40, "g"] = "1"
    few = streammc.predict(run, from_table(other, like=data), trained_on=data)
    assert facts(few)["new_group_rows"] == 19
    assert "warnings" not in facts(few)


def test_the_command_warns_of_mostly_new_groups(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(tmp_path, "numbers", "csv").rename("train.csv")
    PLAIN.assign(g="other").to_csv("new.csv", index=False)
    ingest = ("ingest", "train.csv", "train.zarr", "--formula", "y ~ x + (1 | g)")
    assert command(*ingest).code == 0
    data = streammc.open_store("train.zarr")
    make_run(tmp_path / "run", gaussian(), data, draws_near([0.1, 0.2, 0.3, 0.4], 0.05))
    assert command("ingest", "new.csv", "new.zarr", "--like", "train.zarr").code == 0
    made = command("predict", "run", "new.zarr", "-o", "p.zarr", "--json")
    assert made.code == 0
    assert "60 of 60 rows of" in made.err
    assert len(made.json["warnings"]) == 1
