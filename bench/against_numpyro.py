"""hmc-ecs against NumPyro's HMCECS: effective draws per second, one chain.

A million rows of 29 columns, correlated 0.3 from one to the next, logistic; 100 blocks, the
inverse Hessian at the mode as the mass of both. Run ``PEERS=path/to/python python
bench/against_numpyro.py``, where that Python has ``bench/requirements.txt``. Both take turns,
each in a process of its own; NumPyro may use every core, streammc uses one. Prints a table and
one line of JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from arviz_stats.base import array_stats

HERE = Path(__file__).resolve().parent
ROWS, DIM, ROUNDS = 1_000_000, 29, 5
SAME = {"subsample_size": 1300, "step_size": 0.2, "trajectory_length": 1.2, "order": 2}
CASES = {
    "same settings": (
        {**SAME, "inner": "hmc", "warmup": 10, "draws": 1000},
        {**SAME, "n_blocks": 100, "certainty": False},
    ),
    "each at its best": (
        {"subsample_size": 130, "order": 2, "inner": "nuts", "warmup": 500, "draws": 2000},
        {},
    ),
}


def make_rows(path: Path) -> None:
    """Write the rows, the mode and the inverse Hessian there."""
    import streammc

    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, DIM))
    for j in range(1, DIM):
        X[:, j] = 0.3 * X[:, j - 1] + np.sqrt(1 - 0.3**2) * X[:, j]
    beta = 0.3 * rng.standard_normal(DIM)
    y = (rng.random(ROWS) < 1 / (1 + np.exp(-X @ beta))).astype(float)
    X = X.astype(np.float32)
    cv = streammc.control_variates(streammc.from_arrays(X, y), streammc.models.logistic())
    np.savez(path, X=X, y=y, theta_star=cv.theta_star, inverse_mass=cv.factor @ cv.factor.T)


def ours(rows: str, options: dict, draws: int, out: str) -> dict[str, float]:
    """Run one chain of hmc-ecs in this process."""
    import resource

    import streammc
    from streammc.control_variates.plan import plan
    from streammc.samplers.hamiltonian import HamiltonianKernel
    from streammc.sampling.build import subsampled

    with np.load(rows) as data:
        store = streammc.from_arrays(data["X"], data["y"])
    model, sampler = streammc.models.logistic(), streammc.samplers.hmc_ecs(**options)
    began = time.perf_counter()
    cv = streammc.control_variates(store, model)
    keys = ("subsample_size", "n_blocks", "certainty")
    chosen = plan(cv, store, model, **{key: options[key] for key in keys if key in options})
    chain = HamiltonianKernel(subsampled(store, model, cv, chosen, sampler), seed=1, chain=0)
    chain.initialise()
    chain.advance(1000, True)
    setup = time.perf_counter() - began
    began, used = time.perf_counter(), time.process_time()
    theta = chain.advance(draws, False)["theta"]
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    np.save(out, theta)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"setup_seconds": setup, "seconds": seconds, "cpu_seconds": cpu, "peak_gb": peak}


def ess(path: str) -> tuple[float, float]:
    """Return the smallest effective sample size of parameters, and of their squares."""
    draws = np.load(path).astype(float)
    centred = draws - draws.mean(axis=0)
    sizes = [
        [array_stats.ess(np.ascontiguousarray(part[None, :, j]), method="mean") for j in range(DIM)]
        for part in (draws, centred**2)
    ]
    return float(min(sizes[0])), float(min(sizes[1]))


def turn(command: list[str], out: str) -> dict[str, float]:
    """Run one side; return what it measured and its effective draws per second."""
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise SystemExit(finished.stderr[-2000:])
    result = json.loads(finished.stdout.splitlines()[-1])
    means, squares = ess(out)
    rate = {"ess": means, "ess_squares": squares, "per_second": means / result["seconds"]}
    return {**result, **rate, "squares_per_second": squares / result["seconds"]}


def main() -> None:
    """Let both sides take turns and print the ratios."""
    if len(sys.argv) > 1:
        print(json.dumps(ours(*json.loads(sys.argv[1]))))
        return
    peers = os.environ.get("PEERS") or sys.exit("set PEERS to a Python with requirements.txt")
    document: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        rows, out = f"{folder}/rows.npz", f"{folder}/draws.npy"
        make_rows(Path(rows))
        for case, (theirs, options) in CASES.items():
            sides: dict[str, list[dict[str, float]]] = {"numpyro": [], "streammc": []}
            for _ in range(ROUNDS):
                job = json.dumps({**theirs, "rows": rows, "out": out})
                sides["numpyro"].append(turn([peers, str(HERE / "peer_numpyro.py"), job], out))
                job = json.dumps([rows, options, 50_000, out])
                sides["streammc"].append(turn([sys.executable, __file__, job], out))
            keys = ("per_second", "squares_per_second", "setup_seconds", "peak_gb", "cpu_seconds")
            found: dict[str, object] = {
                side: {k: statistics.median(r[k] for r in runs) for k in keys}
                for side, runs in sides.items()
            }
            pairs = list(zip(sides["streammc"], sides["numpyro"], strict=True))
            for key in ("per_second", "squares_per_second"):
                found[f"ratio {key}"] = statistics.median(a[key] / b[key] for a, b in pairs)
            found["version"] = sides["numpyro"][0]["version"]
            document[case] = found
            print(case, json.dumps(found, indent=1), flush=True)
    print(json.dumps({"against_numpyro": document}))


if __name__ == "__main__":
    main()
