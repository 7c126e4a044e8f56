"""One run of NumPyro's HMCECS, for ``bench/peers.py``; needs ``requirements.txt``.

The sampler's own step is scanned inside one compiled function that takes the rows as arguments:
this is faster than ``MCMC.run``, which compiles them in as constants and sums the data again.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time

import numpy as np

CHUNK = 1000


def main(job: str) -> None:
    """Run the job that a JSON object describes."""
    options = json.loads(job)
    if options["cores"]:  # one core beats all of them where the work is small
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options["cores"] :])
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import HMC, HMCECS, NUTS
    from peer_data import load_rows

    numpyro.enable_x64(options["x64"])
    real = jnp.float64 if options["x64"] else jnp.float32
    X, y, centre, factor = load_rows(options["folder"])
    rows = (jnp.asarray(X, jnp.float32), jnp.asarray(y, jnp.float32))
    mass = jnp.asarray(factor @ factor.T, real)
    n, d = X.shape
    del X, y

    def model(X, y):
        beta = numpyro.sample("beta", dist.Normal(jnp.zeros(d, real), 10.0).to_event(1))
        with numpyro.plate("rows", n, subsample_size=options["subsample_size"]):
            x = numpyro.subsample(X, event_dim=1).astype(real)
            logits = (x * beta).sum(-1) if options["multiply"] else x @ beta
            numpyro.sample("y", dist.Bernoulli(logits=logits), obs=numpyro.subsample(y, 0))

    fixed = {"adapt_mass_matrix": False, "dense_mass": True, "inverse_mass_matrix": mass}
    if options["step_size"] is not None:
        fixed |= {"step_size": options["step_size"], "adapt_step_size": False}
    if options["inner"] == "hmc":
        inner = HMC(model, trajectory_length=options["trajectory_length"], **fixed)
    else:
        inner = NUTS(model, target_accept_prob=options["target_acceptance"], **fixed)
    reference = {"beta": jnp.asarray(centre, real)}
    proxy = HMCECS.taylor_proxy(reference, degree=options["order"])
    kernel = HMCECS(inner, num_blocks=min(100, options["subsample_size"]), proxy=proxy)

    def step(state, rows):
        state = kernel.sample(state, rows, {})
        return state, (
            state.z["beta"],
            state.hmc_state.num_steps,
            state.hmc_state.adapt_state.step_size,
        )

    @jax.jit
    def advance(state, rows):
        return jax.lax.scan(lambda s, _: step(s, rows), state, None, length=CHUNK)

    warmup = -(-options["warmup"] // CHUNK) * CHUNK
    began = time.perf_counter()
    state = kernel.init(jax.random.PRNGKey(0), warmup, dict(reference), rows, {})
    jax.block_until_ready(state)
    summed = time.perf_counter()
    compiled = advance.lower(state, rows).compile()
    ready = time.perf_counter()
    for _ in range(warmup // CHUNK):
        state, _ = compiled(state, rows)
    jax.block_until_ready(state)
    setup = time.perf_counter() - began
    beta, steps = [], []
    began, used = time.perf_counter(), time.process_time()
    for _ in range(-(-options["draws"] // CHUNK)):
        state, (draws, taken, sizes) = compiled(state, rows)
        beta.append(np.asarray(draws))
        steps.append(np.asarray(taken))
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    np.save(f"{options['folder']}/draws.npy", np.concatenate(beta))
    result = {
        "setup_seconds": setup,
        "compile_seconds": ready - summed,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "iterations": len(beta) * CHUNK,
        "steps": float(np.mean(steps)),
        "step_size": float(sizes[-1]),
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "version": f"NumPyro {numpyro.__version__}, jax {jax.__version__}",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
