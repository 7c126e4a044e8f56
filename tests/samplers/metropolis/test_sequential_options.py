"""Options of the samplers with a sequential test."""

from __future__ import annotations

import pytest

from streammc.errors import ConfigError
from streammc.samplers import mh_austere, mh_sublhd


@pytest.mark.parametrize(
    ("build", "options", "found"),
    [
        (
            mh_austere,
            {"epsilon": 0.5},
            "epsilon must be a finite number in [1e-06, 0.5), found 0.5",
        ),
        (mh_austere, {"epsilon": 1e-9}, "epsilon must be a finite number in [1e-06"),
        (
            mh_austere,
            {"max_error": 0.0},
            "max_error must be a finite number in (0, 0.5], found 0.0",
        ),
        (mh_austere, {"conservative": "no"}, "conservative must be true or false, found 'no'"),
        (mh_austere, {"given_uniform": True}, "given_uniform=True needs conservative=False"),
        (
            mh_austere,
            {"conservative": False, "epsilon": 0.01, "subsample_size": 50},
            "leave one of them out",
        ),
        (mh_sublhd, {"gamma": 1.0}, "gamma must be a finite number above 1, found 1.0"),
        (mh_sublhd, {"p": None}, "p must be a number, found None"),
        (mh_sublhd, {"delta": 0.7}, "delta must be a finite number in (0, 0.5], found 0.7"),
        (mh_sublhd, {"bound": "guess"}, "bound must be one of pass, model, found 'guess'"),
        (mh_sublhd, {"inequality": "hoeffding"}, "one of bernstein-serfling, bernstein"),
        (mh_sublhd, {"epsilon": 0.1}, "unknown option 'epsilon' of mh-sublhd"),
    ],
)
def test_options_out_of_range_are_refused(build, options, found) -> None:
    with pytest.raises(ConfigError) as refused:
        build(**options)
    assert found in str(refused.value)


def test_tests_are_prepared_with_the_options_of_the_sampler() -> None:
    prepared = mh_austere(max_error=0.05).acceptance_test(5000, None)
    assert prepared.first in range(50, 501, 50)
    assert (False, False, False) == (prepared.replace, prepared.sweeps, prepared.barker)
    searching = mh_austere(conservative=False).acceptance_test(5000, None)
    assert (0, True) == (searching.first, searching.sweeps)
    by_pass, by_model = mh_sublhd(), mh_sublhd(bound="model")
    assert (False, True) == (by_pass.takes_bound, by_model.takes_bound)
    assert by_pass.acceptance_test(5000, None).sweeps
    assert not by_model.acceptance_test(5000, 70).sweeps
