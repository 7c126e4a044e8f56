"""NUTS of NumPyro or nutpie on all latent effects, for ``bench/mixed_models.py``.

    python bench/peer_mixed.py FOLDER numpyro|nutpie

FOLDER has ``rows.npz`` with the design, the response, the group of each row, the likelihood and the
scales of the priors. The effects are non-centred; nutpie has the model from PyMC. Writes
``draws.npz`` and prints one line of JSON; needs ``requirements.txt``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np


def numpyro_draws(rows):
    """Return the draws, and the seconds before and of them."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    numpyro.set_host_device_count(1)
    X, y, group = (jnp.asarray(rows[name]) for name in ("X", "y", "group"))
    kind, d, n_groups = str(rows["kind"]), X.shape[1], int(rows["n_groups"])

    def model():
        beta = numpyro.sample("beta", dist.Normal(jnp.zeros(d), float(rows["scale"])).to_event(1))
        tau = numpyro.sample("tau", dist.HalfNormal(float(rows["tau_scale"])))
        v = numpyro.sample("v", dist.Normal(jnp.zeros(n_groups), 1.0).to_event(1))
        u = numpyro.deterministic("u", tau * v)
        eta = X @ beta + u[group]
        if kind == "gaussian":
            sigma = numpyro.sample("sigma", dist.HalfNormal(float(rows["scale"])))
            numpyro.sample("y", dist.Normal(eta, sigma), obs=y)
        else:
            numpyro.sample("y", dist.Bernoulli(logits=eta), obs=y)

    began = time.perf_counter()
    sampler = MCMC(
        NUTS(model), num_warmup=int(rows["warmup"]), num_samples=int(rows["draws"]),
        num_chains=1, progress_bar=False,
    )  # fmt: skip
    sampler.warmup(jax.random.PRNGKey(1))
    warm = time.perf_counter()
    sampler.run(jax.random.PRNGKey(2))
    found = {name: np.asarray(value) for name, value in sampler.get_samples().items()}
    seconds = time.perf_counter() - warm
    return found, warm - began, seconds


def nutpie_draws(rows):
    """Return the draws, and the seconds before and of them: leapfrog steps share the sampling."""
    import nutpie
    import pymc

    kind, d, n_groups = str(rows["kind"]), rows["X"].shape[1], int(rows["n_groups"])
    began = time.perf_counter()
    with pymc.Model() as model:
        beta = pymc.Normal("beta", 0.0, float(rows["scale"]), shape=d)
        tau = pymc.HalfNormal("tau", float(rows["tau_scale"]))
        u = pymc.Deterministic("u", tau * pymc.Normal("v", 0.0, 1.0, shape=n_groups))
        eta = rows["X"] @ beta + u[rows["group"]]
        if kind == "gaussian":
            sigma = pymc.HalfNormal("sigma", float(rows["scale"]))
            pymc.Normal("y", eta, sigma, observed=rows["y"])
        else:
            pymc.Bernoulli("y", logit_p=eta, observed=rows["y"])
    compiled = nutpie.compile_pymc_model(model)
    start = time.perf_counter()
    trace = nutpie.sample(
        compiled, tune=int(rows["warmup"]), draws=int(rows["draws"]), chains=1, cores=1, seed=1,
        progress_bar=False, save_warmup=True,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    steps = float(trace.sample_stats["n_steps"].sum())
    share = steps / (steps + float(trace.warmup_sample_stats["n_steps"].sum()))
    found = {name: np.asarray(trace.posterior[name])[0] for name in trace.posterior.data_vars}
    return found, start - began + seconds * (1 - share), seconds * share


def main(folder: str, tool: str) -> None:
    """Sample the posterior of coefficients, scales and effects."""
    rows = dict(np.load(Path(folder) / "rows.npz"))
    found, setup, seconds = {"numpyro": numpyro_draws, "nutpie": nutpie_draws}[tool](rows)
    found.pop("v")
    np.savez(Path(folder) / "draws.npz", **found)
    print(json.dumps({"setup_seconds": setup, "seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
