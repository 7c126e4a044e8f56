"""Check 13: the random streams of chains and roles are different and unrelated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from streammc import rng
from streammc.rng import Role, stream

STREAMS, NUMBERS, LIMIT = 10_000, 64, 4.5
Record = Callable[[str, object], None]


def numbers(make: Callable[[int, int, Role], np.random.Generator]) -> np.ndarray:
    """Return (streams, numbers) 64-bit integers: of every role, of many chains."""
    roles = list(Role)
    made = (make(1, i // len(roles), roles[i % len(roles)]) for i in range(STREAMS))
    return np.array([each.bit_generator.random_raw(NUMBERS) for each in made])


def repeats(found: np.ndarray) -> int:
    return int(found.size - len(np.unique(found)))


@pytest.mark.trust(13)
def test_streams_of_chains_and_roles_share_no_number(record_property: Record) -> None:
    found = numbers(stream)
    assert 0 == repeats(found)
    unit = found.astype(float) / 2.0**64 - 0.5
    worst = 0.0
    for lag in (1, len(Role)):  # the next role, the next chain
        product = (unit[:-lag] * unit[lag:]).ravel() * 12.0
        worst = max(worst, abs(product.mean()) * np.sqrt(len(product)))
    assert worst < LIMIT
    record_property("figure", f"{STREAMS:,} streams: no number twice, correlation z {worst:.1f}")


@pytest.mark.trust(13)
def test_chains_with_the_streams_of_the_first_are_caught(record_property: Record) -> None:
    shared = numbers(lambda seed, chain, role: stream(seed, 0, role))
    assert repeats(shared) > STREAMS
    record_property("caught", "chains that share a seed")


@pytest.mark.trust(13)
def test_a_restored_stream_goes_on_with_the_next_number() -> None:
    first = stream(3, 1, Role.KERNEL)
    first.standard_normal(7)
    state = rng.get_state(first)
    expected = first.standard_normal(1000)
    np.testing.assert_array_equal(expected, rng.from_state(state).standard_normal(1000))
    assert (expected != stream(3, 1, Role.KERNEL).standard_normal(1000)).any()
