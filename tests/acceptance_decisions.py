"""Many decisions of one acceptance test on a fixed population of terms."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numba import types

from streammc.numerics.jit import GENERATOR_TYPE, f8, i8, jit, matrix, vector
from streammc.samplers.metropolis.acceptance import (
    ACCEPT,
    BOUND,
    ERROR,
    FORCED,
    KNOWN,
    MORE,
    N_CARRIED,
    N_DRAWS,
    N_FACTS,
    N_MEMORY,
    N_REPLY,
    N_TERMS,
    POPULATION,
    SWEEP,
    SWEPT,
    TEST_TYPE,
    USED,
    WANTED,
    add_terms,
    sweep_terms,
)


class Decisions(NamedTuple):
    """What many decisions came to."""

    accepted: float
    """Share accepted."""
    used: np.ndarray
    """(n,) terms each rests on."""
    error: np.ndarray
    """(n,) error that each claims."""
    forced: np.ndarray
    """(n,) whether it was forced."""


@jit(types.void(TEST_TYPE, vector, vector, matrix, f8, f8, i8, GENERATOR_TYPE, vector, matrix))
def _run(test, settings, population, table, known, bound, replace, rng, carried, out):
    size = population.shape[0]
    order = np.arange(size)
    facts = np.zeros(N_FACTS)
    terms = np.zeros(N_TERMS)
    draws = np.zeros(N_DRAWS)
    memory = np.zeros(N_MEMORY)
    reply = np.zeros(N_REPLY)
    batch = np.zeros(size)
    for t in range(out.shape[0]):
        facts[:] = 0.0
        memory[:] = 0.0
        reply[:] = 0.0
        facts[KNOWN], facts[POPULATION], facts[BOUND] = known, size, bound
        draws[0], draws[1], draws[2] = rng.random(), rng.standard_normal(), rng.random()
        taken = 0
        verdict = test(settings, facts, terms, draws, memory, carried, reply, table)
        while verdict >= MORE:
            if verdict == SWEEP:
                sweep_terms(population, size, 1.0, 0.0, facts)
                facts[SWEPT] = 1.0
            else:
                left = int(reply[WANTED])
                if replace == 0:
                    left = min(left, size - taken)
                # A batch larger than the population comes with replacement: in pieces.
                for j in range(min(left, size)):
                    if replace == 1:
                        batch[j] = population[rng.integers(0, size)]
                    else:
                        k = rng.integers(taken, size)
                        order[taken], order[k] = order[k], order[taken]
                        batch[j] = population[order[taken]]
                        taken += 1
                add_terms(batch, min(left, size), 1.0, facts, terms)
            verdict = test(settings, facts, terms, draws, memory, carried, reply, table)
        out[t, 0] = 1.0 if verdict == ACCEPT else 0.0
        out[t, 1] = reply[USED]
        out[t, 2] = reply[ERROR]
        out[t, 3] = reply[FORCED]


def decisions(
    test: Any,
    settings: np.ndarray,
    population: np.ndarray,
    *,
    n: int,
    seed: int,
    delta: float,
    replace: bool,
    table: np.ndarray | None = None,
    bound: float = np.inf,
) -> Decisions:
    """Return ``n`` decisions on terms ``population`` (U,) where the true Delta is ``delta``.

    Many are made in four parts, each with a stream and a memory of its own, on all cores.
    """
    table = np.zeros((0, 0)) if table is None else np.ascontiguousarray(table)
    known = delta - float(population.mean())
    out = np.zeros((n, 4))
    parts = 4 if n >= 400_000 else 1
    seeds = np.random.SeedSequence(seed).spawn(parts) if parts > 1 else [seed]

    def decide(part: int) -> None:
        rng = np.random.Generator(np.random.PCG64(seeds[part]))
        _run(
            test, settings, population, table, known, bound, int(replace), rng,
            np.zeros(N_CARRIED), out[part * n // parts : (part + 1) * n // parts],
        )  # fmt: skip

    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(decide, range(parts)))
    return Decisions(out[:, 0].mean(), out[:, 1], out[:, 2], out[:, 3] != 0.0)
