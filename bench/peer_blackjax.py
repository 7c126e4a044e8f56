"""One run of BlackJAX's SGLD or SGHMC, for ``bench/peers.py``; needs ``requirements.txt``.

Gradients with control variates at the mode; parameters whitened by the Hessian there, which is
their best case: one step size fits all. The rows come whitened too, so that a minibatch is one
gather. The step is scanned inside one compiled function.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time

import numpy as np

CHUNK = 10_000


def main(job: str) -> None:
    """Run the job that a JSON object describes."""
    options = json.loads(job)
    if options["cores"]:  # one core beats all of them where the work is small
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options["cores"] :])
    import blackjax
    import jax
    import jax.numpy as jnp
    from blackjax.sgmcmc.gradients import control_variates, grad_estimator
    from peer_data import load_rows

    jax.config.update("jax_enable_x64", options["x64"])
    real = jnp.float64 if options["x64"] else jnp.float32
    X, y, centre, factor = load_rows(options["folder"])
    n, d = X.shape
    m, length = options["subsample_size"], options["length"]
    began = time.perf_counter()
    # x'theta = x'centre + (x'factor) z
    table = np.column_stack([X @ factor, X @ centre, y]).astype(np.float32)
    del X, y
    rows = jnp.asarray(table)
    del table
    whole = jnp.asarray(factor, real), jnp.asarray(centre, real)

    def log_prior(z):
        theta = whole[1] + whole[0] @ z
        return -theta @ theta / 200

    def log_likelihood(z, row):
        eta = row[:d].astype(real) @ z + row[d]
        return row[d + 1] * eta - jax.nn.softplus(eta)

    plain = grad_estimator(log_prior, log_likelihood, n)
    gradient = control_variates(plain, jnp.zeros(d, real), rows)
    if options["method"] == "sgld":
        sampler = blackjax.sgld(gradient)
    else:
        sampler = blackjax.sghmc(gradient, length, options["alpha"])

    def step(state, key, rows, step_size):
        pick, move = jax.random.split(key)
        batch = rows[jax.random.randint(pick, (m,), 0, n)]
        state = sampler.step(move, state, batch, step_size)
        return state, state

    @jax.jit
    def advance(key, state, rows, step_size):
        keys = jax.random.split(key, CHUNK)
        return jax.lax.scan(lambda s, k: step(s, k, rows, step_size), state, keys)

    key = jax.random.PRNGKey(0)
    state = sampler.init(jnp.zeros(d, real))
    summed = time.perf_counter()
    size = jnp.asarray(options["step_size"], real)
    compiled = advance.lower(key, state, rows, size).compile()
    ready = time.perf_counter()
    state, _ = jax.block_until_ready(compiled(key, state, rows, size))
    setup = time.perf_counter() - began
    found = []
    began, used = time.perf_counter(), time.process_time()
    for chunk in range(-(-options["draws"] // CHUNK)):
        state, draws = compiled(jax.random.fold_in(key, chunk + 1), state, rows, size)
        found.append(np.asarray(draws))
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    z = np.concatenate(found).astype(float)
    np.save(f"{options['folder']}/draws.npy", centre + z @ factor.T)
    result = {
        "setup_seconds": setup,
        "compile_seconds": ready - summed,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "iterations": len(z),
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "version": f"BlackJAX {blackjax.__version__}, jax {jax.__version__}",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
