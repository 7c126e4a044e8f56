"""What stochastic gradients do to variances: predicted in closed form, and measured.

A simulated logistic regression, 100,000 rows and 11 coefficients. Every setting is run with
eight chains; the variance of each coefficient over that of a long run of hmc-ecs, averaged
over the coefficients, is compared with the prediction made before the first draw. The cost
of an independent draw is in evaluations of rows, hmc-ecs being 1. Run as
``python bench/stochastic_gradients.py [--threads N] [--write]``; ``--write`` renews
``docs/explanation/stochastic-gradients.md``.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from page import machine, publish, short

import streammc
from streammc.protocols import Dataset
from streammc.runs.job import run_job
from streammc.samplers import hmc_ecs, sghmc, sgld
from streammc.samplers.common.sampler import RunRequest
from streammc.trace.run_directory import RunDirectory

N, DIM, CHAINS, M = 100_000, 11, 8, 300
NONE: dict[str, Any] = {"control_variate": "none", "subsample_size": M}
SETTINGS: list[tuple[str, Any, int]] = [
    ("`sgld`, default step", sgld(), 60_000),
    ("`sgld`, ten times as long", sgld(step_size=0.396), 20_000),
    ("`sgld`, order 1", sgld(control_variate=1, step_size=0.396), 20_000),
    ("`sgld`, none", sgld(**NONE, step_size=0.04), 60_000),
    ("`sghmc`, default steps", sghmc(), 5000),
    ("`sghmc` of the paper", sghmc(step_size=0.06, n_steps=20, friction=0.0), 5000),
    ("`sghmc` of the paper, short", sghmc(step_size=0.02, n_steps=7, friction=0.0), 60_000),
    ("`sghmc`, none, friction 0", sghmc(**NONE, step_size=0.02, friction=0.0), 1000),
    ("`sghmc`, none, friction 4", sghmc(**NONE, step_size=0.02, friction=4.0), 1000),
    (
        "`sghmc`, none, friction 4, noise estimated",
        sghmc(**NONE, step_size=0.02, friction=4.0, noise_estimate="estimated"),
        1000,
    ),
]


def table() -> Dataset:
    """Return the simulated rows."""
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(N), rng.standard_normal((N, DIM - 1))]
    eta = X @ (0.3 * rng.standard_normal(DIM))
    return streammc.from_arrays(X, (rng.random(N) < 1 / (1 + np.exp(-eta))).astype(float))


def main() -> None:
    """Print one line per setting."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    data, model = table(), streammc.models.logistic(streammc.priors.normal(10.0))
    cv = streammc.control_variates(data, model)

    def run(sampler: Any, draws: int) -> tuple[np.ndarray, dict[str, Any]]:
        """Return (chain, d) variances about the common mean, and the summary."""
        report = run_job(
            RunRequest(
                data,
                model,
                sampler,
                control_variates=cv,
                draws=draws,
                warmup=2000,
                chains=CHAINS,
                seed=7,
                audit=False,
                threads=arguments.threads,
            )
        )
        found = RunDirectory.open(report.path).draws_matrix()
        return ((found - found.mean(axis=(0, 1))) ** 2).mean(axis=1), report.summary

    right, reference = run(hmc_ecs(), 30_000)
    cost = reference["cost"]["ct_draws"]["median"]
    lines = [
        "| setting | m | ε | L | predicted variance | measured | cost of an independent draw |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for name, sampler, draws in SETTINGS:
        variance, summary = run(sampler, draws)
        ratio = (variance / right.mean(axis=0)).mean(axis=1)
        sampling = summary["sampling"]
        predicted = np.mean(list(sampling["predicted_variance_ratio"].values()))
        relative = summary["cost"]["ct_draws"]["median"] / cost
        lines.append(
            f"| {name} | {sampling['subsample_size']} | {short(sampling['step_size'])} "
            f"| {sampling['n_steps']:.0f} "
            f"| {predicted:.3f} | {ratio.mean():.3f} ± {ratio.std(ddof=1) / CHAINS**0.5:.3f} "
            f"| {short(relative)} |"
        )
        print(lines[-1], flush=True)
    lines += ["", f"{machine()}; `python bench/stochastic_gradients.py --write`."]
    if arguments.write:
        publish("stochastic-gradients.md", "measured", lines)


if __name__ == "__main__":
    main()
