"""NumPyro's NUTS on all latent effects, for ``bench/mixed_models.py``; needs ``requirements.txt``.

    python bench/peer_mixed.py FOLDER

FOLDER has ``rows.npz`` with the design, the response, the group of each row, the likelihood and the
scales of the priors. The effects are non-centred. Writes ``draws.npz`` and prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np


def main(folder: str) -> None:
    """Sample the posterior of coefficients, scales and effects."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    numpyro.set_host_device_count(1)
    rows = np.load(Path(folder) / "rows.npz")
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
    found.pop("v")
    np.savez(Path(folder) / "draws.npz", **found)
    print(json.dumps({"setup_seconds": warm - began, "seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1])
