"""Options of ``mh-minibatch`` and ``mh-fixed``: as their tests receive them, and refusals."""

from __future__ import annotations

import pytest

from streammc.errors import ConfigError
from streammc.samplers import mh_fixed, mh_minibatch
from streammc.samplers.metropolis import mh_fixed as mh_fixed_options
from streammc.samplers.metropolis import mh_minibatch as mh_minibatch_options
from streammc.samplers.metropolis.correction import LARGEST_SIGMA


@pytest.mark.parametrize(("build", "first"), [(mh_minibatch, 30), (mh_fixed, 6 * 30)])
def test_tests_with_barkers_function_draw_with_replacement(build, first) -> None:
    sampler = build()
    prepared = sampler.acceptance_test(1000, 30)
    assert "approximate" == sampler.target
    assert prepared.barker
    assert prepared.replace
    assert first == prepared.first


def test_largest_standard_deviations_leave_something_to_correct_with() -> None:
    for limit in (mh_minibatch_options.LARGEST_SIGMA, mh_fixed_options.LARGEST_LIMIT):
        assert limit < LARGEST_SIGMA


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (mh_minibatch, {"delta": 0.0}, "delta must be a finite number in"),
        (mh_minibatch, {"sigma": 1.9}, "sigma must be a finite number"),
        (mh_minibatch, {"bound": "cls"}, "bound must be one of edgeworth, clt, found 'cls'"),
        (mh_minibatch, {"correction": "best"}, "correction must be one of optimal, paper"),
        (mh_minibatch, {"skew_corrected": 1}, "skew_corrected must be true or false, found 1"),
        (mh_minibatch, {"skew_corrected": True, "sigma": 1.5}, "a sigma of at most 1.2"),
        (mh_minibatch, {"skew_corrected": True, "correction": "paper"}, "correction='optimal'"),
        (mh_minibatch, {"detla": 0.1}, "unknown option 'detla' of mh-minibatch: did you mean"),
        (mh_fixed, {"batches": 1}, "batches must be a whole number from 2 to 50, found 1"),
        (mh_fixed, {"batches": True}, "batches must be a whole number from 2 to 50, found True"),
        (mh_fixed, {"limit": 2.0}, "limit must be a finite number"),
        (mh_fixed, {"remedy": "wait"}, "remedy must be one of skip, grow, shrink, heat"),
        (mh_fixed, {"smoothing": 1.0}, r"smoothing must be a finite number in \[0, 1\), found 1.0"),
        (mh_fixed, {"smoothing": None}, "smoothing must be"),
    ],
)
def test_wrong_values_are_refused(build, options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        build(**options)


def test_delta_none_leaves_the_error_unbounded() -> None:
    assert mh_minibatch(delta=None).delta is None
