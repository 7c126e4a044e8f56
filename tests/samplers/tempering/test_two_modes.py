"""Two modes 20 sd apart with 0.7 and 0.3 of the mass: ladders find both, in proportion.

``bench/two_modes.py`` draws long enough for errors of 2 %, with ``mintee`` as well.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"
CHAINS = 8
DRAWS = {"pt": 3000, "spt": 8000, "tt": 8000, "stt": 8000}
"""Per chain: the Monte Carlo standard error of the mass is about 0.02, so that 4.5 of them are
half of what separates the mass from a half."""


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import two_modes

    yield two_modes
    sys.modules.pop("two_modes", None)


def test_quadrature_of_the_two_modes_gives_their_stated_masses(bench):
    right = bench.truth(points=201)
    assert abs(right.weight - 0.7) < 1e-3
    assert abs(right.apart - 20.0) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWS)
def test_ladders_give_both_modes_their_mass(bench, name):
    found = bench.run(bench.SAMPLERS[name][0], DRAWS[name], chains=CHAINS, seed=1)
    right = bench.truth(points=201)
    assert abs(found.weight - right.weight) < 4.5 * found.error
    # A sampler that cannot tell the modes apart would be right about a half.
    assert abs(found.weight - 0.5) > 4.5 * found.error


def test_hmc_starts_in_both_modes_and_crosses_between_none(bench):
    found = bench.run(bench.SAMPLERS["hmc"][0], 500, chains=4, seed=1, warmup=300)
    assert (0.5, 0) == (found.weight, found.crossings)  # two chains in each, whatever its mass
