"""Energy rings, and the jump from them by enumeration."""

import math

import numpy as np
import pytest

from streammc.samplers.equi_energy.loop import (
    add,
    allocate_rings,
    energy_levels,
    jump_ratio,
    ring_of,
)

CAPACITY, ADDED, REPEATS = 12, 60, 2000


def shares(*, broken=False):
    """Return how often each state that was added is held; broken: the latest always enters."""
    rng = np.random.default_rng(1)
    held = np.zeros(ADDED)
    for _ in range(REPEATS):
        rings = allocate_rings(1, CAPACITY, 1)
        for i, u in enumerate(rng.random(ADDED)):
            share = CAPACITY / rings.seen[0, 0] if broken and i >= CAPACITY else 1.0
            add(rings, 0, 0, np.array([float(i)]), float(i), u * share)
        np.testing.assert_array_equal(rings.z[0, 0, :, 0], rings.value[0, 0])
        held[rings.value[0, 0].astype(int)] += 1.0
        assert CAPACITY == rings.held[0, 0]
        assert ADDED == rings.seen[0, 0]
    return held / REPEATS


def test_every_state_is_equally_likely_to_be_held():
    p = CAPACITY / ADDED
    error = math.sqrt(p * (1.0 - p) / REPEATS)
    assert np.abs(shares() - p).max() < 4.5 * error
    assert np.abs(shares(broken=True) - p).max() > 9.0 * error


def test_rings_that_would_take_too_much_room_hold_fewer(monkeypatch):
    monkeypatch.setattr("streammc.samplers.equi_energy.loop.RING_BYTES", 8 * 4 * 9 * 5)
    assert (3, 3, 5, 3) == allocate_rings(3, 1000, 3).z.shape
    assert (3, 3, 1, 300) == allocate_rings(3, 1000, 300).z.shape


def test_energy_levels_are_c_temperatures_apart():
    levels = energy_levels(5.0, 10.0, np.array([1.0, 2.0, 4.0]))
    np.testing.assert_array_equal([5.0, 15.0, 35.0, math.inf], levels)


@pytest.mark.parametrize(
    ("energy", "ring"),
    [(-3.0, 0), (0.0, 0), (9.999, 0), (10.0, 1), (29.9, 1), (30.0, 2), (1e9, 2), (math.inf, 2)],
)
def test_a_ring_holds_its_lower_end(energy, ring):
    assert ring == ring_of(np.array([0.0, 10.0, 30.0, math.inf]), energy)


def test_one_level_has_one_ring():
    assert 0 == ring_of(np.array([0.0, math.inf]), 1e3)


# Six states; energies under level k, k + 1 and k + 2, which see other rows.
ENERGY = np.array(
    [[0.3, 4.0, 1.1, 2.2, 0.0, 3.1], [0.9, 3.0, 0.4, 2.6, 0.2, 2.4], [0.5, 2.5, 1.0, 2.0, 0.1, 2.2]]
)
TEMPERATURE = np.array([1.0, 1.7, 2.9])
BOUNDS = np.array([0.0, 0.8, 2.5, math.inf])
PRIOR = np.array([0.3, 0.1, 0.2, 0.15, 0.15, 0.1])


def density(level):
    floor = BOUNDS[level] if level else -math.inf
    p = np.exp(-np.maximum(ENERGY[level], floor) / TEMPERATURE[level]) * PRIOR
    return p / p.sum()


def moved(level, ratio, *, ring_by=None):
    """Return the density of ``level`` after a jump from rings that are the level above."""
    above = density(level + 1)
    rings = np.array([ring_of(BOUNDS, e) for e in ENERGY[level + 1]])
    asked = rings if ring_by is None else np.array([ring_of(BOUNDS, e) for e in ENERGY[ring_by]])
    P = np.zeros((6, 6))
    for x in range(6):
        inside = rings == asked[x]
        for new in np.flatnonzero(inside):
            P[x, new] += above[new] / above[inside].sum() * min(1.0, ratio(level, x, new))
        P[x, x] += 1.0 - P[x].sum()
    return density(level) @ P


def ours(level, x, new):
    floor = np.array([-math.inf, *BOUNDS[1:]])
    now, above = ENERGY[level], ENERGY[level + 1]
    return math.exp(
        jump_ratio(
            now[x], above[x], now[new], above[new],
            floor[level], TEMPERATURE[level], floor[level + 1], TEMPERATURE[level + 1],
        )
    )  # fmt: skip


def printed_in_the_text(level, x, new):
    """The ratio of the paper's appendix: the level above cancels, that above it is divided by."""
    return density(level)[new] / density(level + 2)[new]


def test_a_jump_leaves_its_level_invariant():
    for level in (0, 1):
        if level == 0:
            wrong = {
                "the ratio printed in the text": moved(0, printed_in_the_text),
                "the ring of its own energy": moved(0, ours, ring_by=0),
            }
        else:
            wrong = {"always": moved(1, lambda *_: 1.0)}
        np.testing.assert_allclose(moved(level, ours), density(level), rtol=0.0, atol=1e-12)
        for name, found in wrong.items():
            assert 0.5 * np.abs(found - density(level)).sum() > 0.005, name
