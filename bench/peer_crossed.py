"""One fit of a peer, for ``bench/crossed_peers.py``.

    python bench/peer_crossed.py FILE.parquet gaussian|logistic PEER [OPTIONS]

PEER is gpboost, numpyro or statsmodels. OPTIONS is a JSON object: of NumPyro ``centred``,
``warmup`` and ``draws``. Prints one line of JSON.
Needs ``requirements.txt`` and pyarrow; of the peers, the one that is named.
"""

from __future__ import annotations

import importlib.metadata
import json
import resource
import sys
import time

import numpy as np
import pyarrow.parquet as pq

NAMES = ("beta[Intercept]", "beta[x]", "tau[user]", "tau[item]", "sigma")


def gpboost(rows, family, options):
    """Return estimates by maximum likelihood, a Laplace approximation of 0/1 responses.

    Its defaults for factors that cross: conjugate gradients and stochastic Lanczos quadrature with
    the SSOR preconditioner, L-BFGS.
    """
    import gpboost as package

    kind = "gaussian" if family == "gaussian" else "bernoulli_logit"
    groups = np.column_stack([rows["user"], rows["item"]])
    X = np.column_stack([np.ones(len(rows["x"])), rows["x"]])
    begun = time.perf_counter()
    model = package.GPModel(group_data=groups, likelihood=kind)
    model.fit(y=rows["y"].astype(float), X=X, params=options)
    seconds = time.perf_counter() - begun
    beta = np.asarray(model.get_coef(format_pandas=False)).ravel()[:2]
    variances = np.asarray(model.get_cov_pars(format_pandas=False)).ravel()
    if family == "gaussian":
        variances = np.r_[variances[1:], variances[0]]
    return {
        "seconds": seconds,
        "found": dict(zip(NAMES, [*beta, *np.sqrt(variances)], strict=False)),
    }


def statsmodels(rows, family, options):
    """Return posterior means by a mean-field variational approximation of 0/1 responses."""
    from scipy import sparse
    from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM

    n = len(rows["y"])
    effects = [
        sparse.csr_matrix((np.ones(n), (np.arange(n), rows[name]))) for name in ("user", "item")
    ]
    ident = np.repeat([0, 1], [each.shape[1] for each in effects])
    X = np.column_stack([np.ones(n), rows["x"]])
    begun = time.perf_counter()
    model = BinomialBayesMixedGLM(
        rows["y"].astype(float), X, sparse.hstack(effects).tocsr(), ident, vcp_p=1.0, fe_p=10.0
    )
    fit = model.fit_vb()
    seconds, tau = time.perf_counter() - begun, np.exp(fit.vcp_mean)
    return {
        "seconds": seconds,
        "found": dict(zip(NAMES, [*fit.fe_mean, *tau], strict=False)),
        "sd": dict(zip(NAMES, [*fit.fe_sd, *(tau * fit.vcp_sd)], strict=False)),
    }


def numpyro(rows, family, options):
    """Return posterior means and effective draws of NUTS on all effects."""
    import jax
    import jax.numpy as jnp
    import numpyro as package
    import numpyro.distributions as dist
    from numpyro.diagnostics import summary
    from numpyro.infer import MCMC, NUTS

    real = jnp.float32
    data = [jnp.asarray(rows["x"], real), jnp.asarray(rows["y"], real)]
    data += [jnp.asarray(rows[name], jnp.int32) for name in ("user", "item")]
    sizes = [int(rows[name].max()) + 1 for name in ("user", "item")]
    unit = float(rows["y"].std()) if family == "gaussian" else 1.0
    middle = float(rows["y"].mean()) if family == "gaussian" else 0.0

    def model(x, y, *codes):
        beta = package.sample("beta", dist.Normal(0.0, 2.5 * unit).expand([2]).to_event(1))
        eta = beta[1] * x
        for name, size, code in zip(("user", "item"), sizes, codes, strict=True):
            tau = package.sample(f"tau[{name}]", dist.HalfNormal(2.5 * unit))
            at = middle + beta[0] if name == "item" else 0.0
            if options["centred"]:  # about the intercept, which mixes with their mean
                v = package.sample(f"v_{name}", dist.Normal(at, tau).expand([size]).to_event(1))
                eta = eta + v[code]
            else:
                v = package.sample(f"v_{name}", dist.Normal(0.0, 1.0).expand([size]).to_event(1))
                eta = eta + (at + tau * v)[code]
        if family == "gaussian":
            sigma = package.sample("sigma", dist.HalfNormal(2.5 * unit))
            package.sample("y", dist.Normal(eta, sigma), obs=y)
        else:
            package.sample("y", dist.Bernoulli(logits=eta), obs=y)

    begun = time.perf_counter()
    sampler = MCMC(
        NUTS(model), num_warmup=options["warmup"], num_samples=options["draws"], num_chains=1,
        progress_bar=False,
    )  # fmt: skip
    sampler.run(jax.random.PRNGKey(1), *data, extra_fields=("num_steps",))
    draws = jax.block_until_ready(sampler.get_samples(group_by_chain=True))
    seconds = time.perf_counter() - begun
    small = {name: np.asarray(each) for name, each in draws.items() if not name.startswith("v_")}
    small["beta[Intercept]"] = small["beta"][..., 0] + middle
    small["beta[x]"] = small.pop("beta")[..., 1]
    table = summary(small)
    return {
        "seconds": seconds,
        "found": {name: float(row["mean"]) for name, row in table.items()},
        "sd": {name: float(row["std"]) for name, row in table.items()},
        "ess": {name: float(row["n_eff"]) for name, row in table.items()},
        "steps": float(np.mean(sampler.get_extra_fields()["num_steps"])),
    }


PEERS = {"gpboost": gpboost, "numpyro": numpyro, "statsmodels": statsmodels}


def main(path, family, peer, options="{}"):
    """Read the table, fit it and print what was found."""
    table = pq.read_table(path)
    rows = {name: table[name].to_numpy() for name in table.column_names}
    found = PEERS[peer](rows, family, json.loads(options))
    found["found"] = {name: float(value) for name, value in found["found"].items()}
    found["version"] = f"{peer} {importlib.metadata.version(peer)}"
    found["peak_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(json.dumps(found, default=float))


if __name__ == "__main__":
    main(*sys.argv[1:])
