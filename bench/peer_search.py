"""Which settings the peers were tried with: the grids of ``bench/peers.py --search``.

``NUMPYRO...``, ``SGLD`` and ``SGHMC`` are the best found, and what the comparison uses.
"""

from __future__ import annotations

from typing import Any

NUMPYRO: dict[str, Any] = {
    "inner": "nuts",
    "order": 2,
    "subsample_size": 30,
    "step_size": None,
    "trajectory_length": None,
    "target_acceptance": 0.7,
    "warmup": 1000,
    "x64": False,
    "multiply": False,
    "cores": 1,
}
NUMPYRO_FIRST = {"order": 1, "subsample_size": 400}
NUMPYRO_HMC = {"inner": "hmc", "step_size": 0.6, "trajectory_length": 1.8, "warmup": 0}
"""Best for the parameters, of HMC."""
NUMPYRO_HMC_4 = {"inner": "hmc", "step_size": 0.4, "trajectory_length": 1.6, "warmup": 0}
"""Best for the worse of parameters and squares."""
SGLD: dict[str, Any] = {
    "method": "sgld",
    "subsample_size": 60,
    "step_size": 0.06,
    "length": 1,
    "alpha": 0.01,
    "x64": False,
    "cores": 1,
}

SGHMC: dict[str, Any] = {
    **SGLD,
    "method": "sghmc",
    "subsample_size": 400,
    "step_size": 0.07,
    "length": 19,
    "alpha": 3.0,
}

_FIRST = {"order": 1, "subsample_size": 1300}
_HMC = {"inner": "hmc", "warmup": 0}

_NUMPYRO_GRID: list[dict[str, Any]] = [
    *({"subsample_size": m} for m in (10, 30, 60, 130, 400)),
    *({"target_acceptance": target} for target in (0.6, 0.8, 0.9)),
    {"cores": None},
    {"x64": True},
    {"multiply": True},
    {"order": 1, "subsample_size": 400},
    _FIRST,
    {**_FIRST, "cores": None},
    {**_FIRST, "multiply": True},
    *(
        {**_HMC, "step_size": step, "trajectory_length": steps * step}
        for step, steps in ((0.4, 4), (0.5, 3), (0.6, 3), (0.6, 5), (0.7, 2), (0.8, 2))
    ),
    {**_HMC, "step_size": 0.7, "trajectory_length": 1.4, "subsample_size": 10},
    {**_FIRST, **_HMC, "step_size": 0.5, "trajectory_length": 1.5},
]
_SGLD_GRID: list[dict[str, Any]] = [
    {"subsample_size": m, "step_size": step}
    for m, steps in (
        (60, (0.04, 0.06)),
        (130, (0.06, 0.08, 0.1)),
        (400, (0.08, 0.1)),
        (1300, (0.1,)),
    )
    for step in steps
]
_SGLD_GRID += [{"subsample_size": 130, "step_size": 0.08, "x64": True}]
# BlackJAX moves position and momentum by the gradient where both were: explicit Euler, whose energy
# grows, so that only short steps with strong friction keep the sd.
_SGHMC_GRID: list[dict[str, Any]] = [
    {"subsample_size": m, "step_size": step, "length": length, "alpha": alpha}
    for m, step, length, alpha in (
        (130, 0.03, 29, 3.0),
        (130, 0.04, 20, 3.0),
        (130, 0.05, 10, 3.0),
        (400, 0.05, 25, 2.0),
        (400, 0.07, 19, 3.0),
        (400, 0.07, 12, 3.0),
        (400, 0.4, 4, 0.01),
        (1300, 0.1, 28, 3.0),
    )
]
_OURS: list[dict[str, Any]] = [
    {"sampler": {}},
    {"sampler": {"subsample_size": 10, "certainty": False}},
    {"sampler": {"subsample_size": 130}},
]

SEARCH: list[tuple[str, str, dict[str, Any], list[dict[str, Any]]]] = [
    ("streammc", "streammc", {"sampler": {}, "warmup": 1000, "draws": 100_000}, _OURS),
    ("numpyro", "numpyro", {**NUMPYRO, "draws": 5000}, _NUMPYRO_GRID),
    ("sgld", "blackjax", {**SGLD, "draws": 100_000}, _SGLD_GRID),
    ("sghmc", "blackjax", {**SGHMC, "draws": 40_000}, _SGHMC_GRID),
]
"""Peer, script, settings, and the changes that are tried."""
