"""The certificate: one record, one JSON."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, replace

import pytest

from streammc.control_variates.expansion import Certificate

WRITTEN = {
    "decrement": 0.01,
    "passes": 2,
    "rows_read": 300,
    "bytes_read": 7200,
    "seconds": 1.5,
    "pass_seconds": 1.0,
    "pass_gb_per_second": 0.1,
    "converged": True,
    "warnings": ["separation: a"],
    "logarithms": ["sigma"],
}
OPTIONAL = {
    "term_bound": 2.5,
    "modes": [[1.0, 2.0], [3.0, 4.0]],
    "recalibration": {"iterations": 20, "rows_gathered": 5},
}


@pytest.mark.parametrize(
    "written",
    [
        WRITTEN,
        {**WRITTEN, "decrement": None},
        {**WRITTEN, "term_bound": None},
        {**WRITTEN, **OPTIONAL},
    ],
)
def test_json_is_written_as_it_was_read(written):
    found = Certificate.from_json(written)
    assert written == json.loads(json.dumps(found.to_json()))
    assert written == dict(found)


def test_entries_are_written_in_the_order_of_earlier_versions():
    names = ["term_bound", *WRITTEN, "recalibration"]
    names.insert(names.index("logarithms"), "modes")
    assert names == list(Certificate.from_json({**WRITTEN, **OPTIONAL}).to_json())


def test_certificates_of_earlier_versions_are_read():
    new = ("pass_seconds", "pass_gb_per_second", "warnings", "logarithms")
    found = Certificate.from_json({k: v for k, v in WRITTEN.items() if k not in new})
    assert (None, (), ()) == (found.pass_seconds, found.warnings, found.logarithms)
    assert "pass_seconds" not in found.to_json()


def test_a_model_without_a_bound_differs_from_no_bound_asked_for():
    assert Certificate.from_json(WRITTEN).term_bound is None
    assert math.inf == Certificate.from_json({**WRITTEN, "term_bound": None}).term_bound


def test_the_work_of_stages_adds_up():
    one = Certificate.from_json(WRITTEN)
    both = one.plus(**one.work())
    assert (4, 600, 14400) == (both.passes, both.rows_read, both.bytes_read)
    assert (3.0, 2.0, 0.01) == (both.seconds, both.pass_seconds, both.decrement)


def test_a_certificate_is_frozen_and_read_by_attribute_or_key():
    found = Certificate.from_json(WRITTEN)
    assert 2 == found.passes == found["passes"]
    assert replace(found) == found
    with pytest.raises(FrozenInstanceError):
        found.passes = 3  # type: ignore[misc]
    with pytest.raises(KeyError):
        found["modes"]
