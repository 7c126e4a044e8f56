"""Chains together: their clock, and what they hand to the trace."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from streammc.samplers.common import chains as module
from streammc.samplers.common.chains import Chains, first_position


class Kernel:
    """Chain ``k`` draws its own number; its state is that number too."""

    def __init__(self, index):
        self.index = index

    def advance(self, n, warmup, stop):
        theta = np.full((n, 1), float(self.index))
        return {"theta": theta, "lp": theta[:, 0] - 10.0 * warmup}

    def get_state(self):
        return {"at": np.array([self.index])}, {"chain": self.index}

    def set_state(self, arrays, meta):
        self.state = (list(arrays), int(arrays["at"][0]), meta["chain"])


class Trace:
    def __init__(self):
        self.kept = []

    def append(self, *interval):
        self.kept.append(interval)


def chains_of(count):
    def kernel(seed, index, batch_iterations):
        return Kernel(index)

    problem = SimpleNamespace(kernel=kernel, constrain=lambda theta: 2 * theta)
    return Chains(problem, seed=1, chains=count)


def test_the_clock_adds_up_the_seconds_of_every_phase(monkeypatch):
    ticks = iter(range(100))
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: 2.0 * next(ticks)))
    chains, trace = chains_of(2), Trace()
    for phase, intervals in (("warmup", 2), ("draws", 3)):
        for _ in range(intervals):
            chains.advance(trace, phase, 4, lambda: False)
    chains.close()
    assert {"warmup": 4.0, "draws": 6.0} == chains.clock == trace.kept[-1][3][1]["clock"]
    assert 0.5 == chains._seconds_per_iteration


def test_the_trace_gets_every_chain_on_its_own_row_and_its_state():
    chains, trace = chains_of(3), Trace()
    chains.advance(trace, "warmup", 4, lambda: False)
    phase, theta, stats, checkpoint = trace.kept[0]
    np.testing.assert_array_equal(2.0 * np.repeat([0, 1, 2], 4), theta.ravel())
    np.testing.assert_array_equal([-10.0, -9.0, -8.0], stats["lp"][:, 0])
    assert ("warmup", (3, 4, 1), {"lp"}) == (phase, theta.shape, set(stats))
    other = chains_of(3)
    other.restore(checkpoint)
    chains.close()
    other.close()
    assert [(["at"], k, k) for k in range(3)] == [kernel.state for kernel in other.kernels]
    assert chains.clock == other.clock


@pytest.mark.parametrize(
    ("spread", "attempt", "scale"), [(1.0, 0, 1.0), (1.0, 2, 1.0), (2.0, 0, 2.0), (2.0, 2, 1.805)]
)
def test_first_positions_have_their_spread_and_a_smaller_one_at_later_attempts(
    spread, attempt, scale
):
    normal = np.random.default_rng(1).standard_normal(3)
    found = first_position(np.random.default_rng(1), 3, 0, attempt, spread)
    np.testing.assert_allclose(scale * normal, found, rtol=1e-15)
