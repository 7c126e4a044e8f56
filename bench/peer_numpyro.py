"""One run of NumPyro's HMCECS, for ``bench/against_numpyro.py``; needs ``requirements.txt``.

Reads rows, centre and inverse mass from one file, writes draws and seconds to another. The
first call compiles and sums the data; an iteration is timed as the difference of two runs,
since every run sums the data again.
"""

from __future__ import annotations

import json
import resource
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import HMC, HMCECS, MCMC, NUTS

SHORT = 100


def main(job: str) -> None:
    """Run the job that a JSON object describes."""
    options = json.loads(job)
    with np.load(options["rows"]) as data:
        X = jnp.asarray(data["X"], jnp.float32)
        y = jnp.asarray(data["y"], jnp.float32)
        centre = jnp.asarray(data["theta_star"], jnp.float32)
        mass = jnp.asarray(data["inverse_mass"], jnp.float32)
    n, d = X.shape
    m = options["subsample_size"]

    def model(X, y):
        beta = numpyro.sample("beta", dist.Normal(jnp.zeros(d), 10.0).to_event(1))
        with numpyro.plate("rows", n, subsample_size=m):
            x = numpyro.subsample(X, event_dim=1)
            numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=numpyro.subsample(y, 0))

    fixed = {"adapt_mass_matrix": False, "dense_mass": True, "inverse_mass_matrix": mass}
    if options["inner"] == "hmc":
        inner = HMC(
            model,
            step_size=options["step_size"],
            trajectory_length=options["trajectory_length"],
            adapt_step_size=False,
            **fixed,
        )
    else:
        inner = NUTS(model, **fixed)
    proxy = HMCECS.taylor_proxy({"beta": centre}, degree=options["order"])
    kernel = HMCECS(inner, num_blocks=100, proxy=proxy)
    mcmc = MCMC(kernel, num_warmup=options["warmup"], num_samples=SHORT, progress_bar=False)
    began = time.perf_counter()
    mcmc.warmup(jax.random.PRNGKey(0), X, y, init_params={"beta": centre})
    setup = time.perf_counter() - began
    seconds, cpu = [], []
    for key, draws in ((1, SHORT), (2, SHORT + options["draws"])):
        mcmc.num_samples = draws
        began, used = time.perf_counter(), time.process_time()
        mcmc.run(jax.random.PRNGKey(key), X, y)
        beta = np.asarray(mcmc.get_samples()["beta"])
        seconds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
    np.save(options["out"], beta[-options["draws"] :])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    result = {
        "setup_seconds": setup,
        "seconds": seconds[1] - seconds[0],
        "cpu_seconds": cpu[1] - cpu[0],
        "peak_gb": peak,
        "version": numpyro.__version__,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
