"""One run of streammc's hmc-ecs, for ``bench/peers.py``: one chain, one thread."""

from __future__ import annotations

import json
import resource
import sys
import time

import numpy as np


def main(job: str) -> None:
    """Run the job that a JSON object describes."""
    options = json.loads(job)
    from peer_data import load_rows

    import streammc
    from streammc.control_variates.plan.subsample_plan import PlanRequest, plan
    from streammc.samplers.hamiltonian.kernel import HamiltonianKernel
    from streammc.samplers.hamiltonian.problem import subsampled

    X, y, *_ = load_rows(options["folder"])
    sampling = options["sampler"]
    began = time.perf_counter()
    store = streammc.from_arrays(X, y)
    model = streammc.models.logistic(streammc.priors.normal(10.0))
    sampler = streammc.samplers.hmc_ecs(**sampling)
    cv = streammc.control_variates(store, model)
    keys = ("subsample_size", "n_blocks", "certainty")
    chosen = plan(
        cv, store, model, PlanRequest(**{key: sampling[key] for key in keys if key in sampling})
    )
    chain = HamiltonianKernel(subsampled(store, model, cv, chosen, sampler), seed=1, chain=0)
    chain.initialise()
    chain.advance(options["warmup"], True)
    setup = time.perf_counter() - began
    began, used = time.perf_counter(), time.process_time()
    draws = chain.advance(options["draws"], False)
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    np.save(f"{options['folder']}/draws.npy", draws["theta"])
    result = {
        "setup_seconds": setup,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "iterations": options["draws"],
        "steps": float(np.mean(draws["n_steps"])) if "n_steps" in draws else float("nan"),
        "subsample_size": chosen.subsample_size,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "version": f"streammc {streammc.__version__}",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
