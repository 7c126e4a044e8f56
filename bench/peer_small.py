"""One table for ``bench/small.py``: from a pandas data frame to draws, by one of the tools.

    python bench/peer_small.py JOB

The job is a JSON object: ``tool`` (``ours``, ``numpyro-vectorized``, ``numpyro-parallel`` or
``nutpie``), ``folder`` with ``table.npz``, ``kind``, ``draws`` of a chain and ``later`` runs in
the same process. Writes ``draws.npy`` (chain, draw, parameter) of the first run and prints one
line of JSON: seconds and processor seconds of the first run with the import of the tool, and of
the later ones.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

CHAINS, WARMUP = 4, 500
"""Chains of every tool; warm-up of the peers (ours is its own default)."""
SCALE, NU = 2.5, 5.0
"""Priors: Normal(0, 2.5) on coefficients, half Normal(2.5) on sigma; degrees of freedom."""
ENOUGH_SECONDS = 60.0
"""After so long no later run is begun but one."""
TARGET_DRAWS = "draws.npy"


def ours(frame, kind, draws):
    """Return a function of a seed that draws from the frame."""
    import streammc

    priors = streammc.priors
    columns = [name for name in frame.columns if name != "y"]
    prior = {"beta*": priors.normal(scale=SCALE)}
    if kind in ("gaussian", "student_t"):
        prior["sigma"] = priors.half_normal(scale=SCALE)
    options = {"df": NU} if kind == "student_t" else {}

    def run(seed):
        store = streammc.from_table(
            frame, formula=f"y ~ {' + '.join(columns)}", standardize=False, seed=1
        )
        model = getattr(streammc.models, kind)(prior, **options)
        tree = streammc.sample(store, model, draws=draws, seed=seed)
        posterior = tree["posterior"]
        found = [posterior["beta"].to_numpy()]
        if "sigma" in posterior:
            found.append(posterior["sigma"].to_numpy()[..., None])
        sampling = streammc.facts(tree)["summary"]["sampling"]
        return np.concatenate(found, axis=-1), sampling["sampler"]

    return run


def numpyro(frame, kind, draws, method):
    """Return a function of a seed that draws from the frame by NUTS."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    if method == "parallel":
        numpyro.set_host_device_count(CHAINS)

    def model(X, y):
        beta = numpyro.sample("beta", dist.Normal(jnp.zeros(X.shape[1]), SCALE).to_event(1))
        eta = X @ beta
        if kind == "logistic":
            numpyro.sample("y", dist.Bernoulli(logits=eta), obs=y)
        elif kind == "poisson":
            numpyro.sample("y", dist.Poisson(jnp.exp(eta)), obs=y)
        else:
            sigma = numpyro.sample("sigma", dist.HalfNormal(SCALE))
            noise = dist.Normal(eta, sigma)
            if kind == "student_t":
                noise = dist.StudentT(NU, eta, sigma)
            numpyro.sample("y", noise, obs=y)

    sampler = MCMC(
        NUTS(model), num_warmup=WARMUP, num_samples=draws, num_chains=CHAINS,
        chain_method=method, progress_bar=False, jit_model_args=True,
    )  # fmt: skip

    def run(seed):
        table = frame.drop(columns="y").to_numpy()
        X = jnp.asarray(np.column_stack([np.ones(len(frame)), table]), jnp.float32)
        sampler.run(jax.random.PRNGKey(seed), X, jnp.asarray(frame["y"].to_numpy(), jnp.float32))
        found = sampler.get_samples(group_by_chain=True)
        parts = [np.asarray(found["beta"])]
        if "sigma" in found:
            parts.append(np.asarray(found["sigma"])[..., None])
        return np.concatenate(parts, axis=-1), method

    return run


def nutpie(frame, kind, draws):
    """Return a function of a seed that draws from the frame by nutpie, over PyMC and numba."""
    import nutpie
    import pymc

    compiled = []

    def build():
        table = frame.drop(columns="y").to_numpy()
        X = np.column_stack([np.ones(len(frame)), table])
        y = frame["y"].to_numpy()
        with pymc.Model() as model:
            beta = pymc.Normal("beta", 0.0, SCALE, shape=X.shape[1])
            eta = X @ beta
            if kind == "logistic":
                pymc.Bernoulli("y", logit_p=eta, observed=y)
            elif kind == "poisson":
                pymc.Poisson("y", mu=pymc.math.exp(eta), observed=y)
            else:
                sigma = pymc.HalfNormal("sigma", SCALE)
                if kind == "gaussian":
                    pymc.Normal("y", eta, sigma, observed=y)
                else:
                    pymc.StudentT("y", nu=NU, mu=eta, sigma=sigma, observed=y)
        return nutpie.compile_pymc_model(model)

    def run(seed):
        if not compiled:
            compiled.append(build())
        trace = nutpie.sample(
            compiled[0], draws=draws, tune=WARMUP, chains=CHAINS, seed=seed, progress_bar=False
        )
        parts = [trace.posterior["beta"].to_numpy()]
        if "sigma" in trace.posterior:
            parts.append(trace.posterior["sigma"].to_numpy()[..., None])
        return np.concatenate(parts, axis=-1), "numba"

    return run


def main(text: str) -> None:
    """Run the job."""
    job = json.loads(text)
    import pandas

    data = np.load(f"{job['folder']}/table.npz")
    frame = pandas.DataFrame(data["X"], columns=[f"x{j}" for j in range(data["X"].shape[1])])
    frame["y"] = data["y"]
    tool, _, method = job["tool"].partition("-")
    made = {"ours": ours, "numpyro": numpyro, "nutpie": nutpie}[tool]
    clocks = []
    note = ""
    run = None
    for seed in range(1, 2 + job["later"]):
        began, used = time.perf_counter(), time.process_time()
        if run is None:
            run = made(frame, job["kind"], job["draws"], *([method] if method else []))
        draws, note = run(seed)
        clocks.append((time.perf_counter() - began, time.process_time() - used))
        if sum(seconds for seconds, _ in clocks) > ENOUGH_SECONDS and len(clocks) > 1:
            break
        if seed == 1:
            np.save(f"{job['folder']}/{TARGET_DRAWS}", draws)
            print(json.dumps({"first": clocks[0], "note": note}), flush=True)
    later = np.median(np.array(clocks[1:]), axis=0).tolist() if len(clocks) > 1 else None
    print(json.dumps({"first": clocks[0], "later": later, "note": note}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
