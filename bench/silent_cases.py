"""Ninety small posteriors: what a case is, and all of them by name."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from silent_densities import posterior
from silent_references import Extra, Reference, gaussian_reference, reference_of

Array = np.ndarray
Data = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One posterior, the sampler that is run on it, and what its reference takes."""

    kind: str
    """What is hard about it, in a few words."""
    family: str
    sampler: str
    data: Callable[[np.random.Generator], Data]
    """Arguments of ``from_arrays``."""
    prior: dict[str, str] | None
    """By parameter; ``None``: the defaults, and the reference has ``against``."""
    against: dict[str, str] | None = None
    """Prior of the reference where the run has its defaults: wide, so that the data decide."""
    tolerance: float = 0.1
    """Reference sds that a mean or sd may be off; more where ``against`` stands for a default."""
    model: dict[str, Any] = field(default_factory=dict)
    """Options of the model."""
    density: dict[str, Any] = field(default_factory=dict)
    """Options of the log density of the reference."""
    run: dict[str, Any] = field(default_factory=dict)
    """Arguments of ``sample`` beside store, model, sampler and seed."""
    heat: float | None = None
    """Temperature that the sampler implies by itself, of the reference."""
    extra: Extra | None = None
    improper: bool = False
    """Whether there is no posterior: the run has to be refused, or warn of it."""
    draws: int = 40_000
    """Draws of importance sampling."""


def data_of(name: str, case: Case) -> Data:
    """Return the observations; they depend on the name alone."""
    return case.data(np.random.default_rng(zlib.crc32(name.encode())))


def reference_for(name: str, case: Case) -> Reference | None:
    """Return the reference, ``None`` where there is no posterior."""
    if case.improper:
        return None
    data, prior = data_of(name, case), case.prior or case.against or {}
    temperature = case.heat or case.run.get("temperature", 1.0)
    normal = all("normal(" in text for key, text in prior.items() if key != "sigma")
    if case.family == "gaussian" and normal and temperature == 1.0 and "groups" not in data:
        return gaussian_reference(data, prior)
    target = posterior(case.family, data, prior, case.density, temperature)
    return reference_of(target, case.extra, case.draws)


def by_order(components: int) -> Extra:
    """Return what tells the modes of a mixture on a line apart, and what they share."""

    def functions(theta: Array) -> dict[str, Array]:
        rank = np.argsort(theta, axis=1)
        found = {
            f"is {''.join(map(str, p))}": np.all(rank == p, axis=1).astype(float)
            for p in itertools.permutations(range(components))
        }
        ordered = np.sort(theta, axis=1)
        return found | {f"any mean {k}": ordered[:, k] for k in range(components)}

    return functions


def by_first_column(components: int) -> Extra:
    """Return the same of a mixture in more columns, whose components differ in the first."""

    def functions(theta: Array) -> dict[str, Array]:
        return by_order(components)(theta.reshape(len(theta), components, -1)[:, :, 0])

    return functions


def at_points(units: int, points: Array) -> Extra:
    """Return the log odds of a network at rows of its design."""

    def functions(theta: Array) -> dict[str, Array]:
        first = theta[:, : units * points.shape[1]].reshape(len(theta), units, -1)
        hidden = 1.0 / (1.0 + np.exp(-np.einsum("muq,pq->mup", first, points)))
        eta = np.einsum("mup,mu->mp", hidden, theta[:, -units - 1 : -1]) + theta[:, -1:]
        return {f"any log odds {p}": eta[:, p] for p in range(len(points))}

    return functions


def cases() -> dict[str, Case]:
    """Return every case by name."""
    from silent_cases_counts import COUNTS
    from silent_cases_gaussian import GAUSSIAN
    from silent_cases_groups import FEW_ROWS, GROUPS
    from silent_cases_modes import MODES
    from silent_cases_samplers import SAMPLERS

    return {**GAUSSIAN, **COUNTS, **MODES, **SAMPLERS, **GROUPS, **FEW_ROWS}
