"""One run of full-data NUTS by nutpie, for ``bench/peers.py``; needs ``requirements.txt``.

nutpie's best case: the log density and its gradient come from one compiled loop over float32 rows
in memory, on every core, with streammc's own vectorised logistic likelihood (five times as fast as
the C library's); the parameters are whitened by the Hessian at the mode, where the chain starts.
"""

from __future__ import annotations

import json
import resource
import sys
import time

import numpy as np

PIECE, WIDTH = 512, 32


def build(X, y, centre, factor):
    """Return ``logp(z) -> (value, gradient)`` at ``theta = centre + factor z``.

    Rows are padded to 32 columns, so that both loops over them are whole vectors.
    """
    import numba

    from streammc.models.glm.bernoulli_logit import link

    n, d = X.shape
    padded = np.zeros((n, WIDTH), np.float32)
    padded[:, :d] = X
    sums = np.zeros((-(-n // PIECE), WIDTH + 8))

    @numba.njit(parallel=True, fastmath=True)
    def density(X, y, weights, sums):
        for piece in numba.prange(sums.shape[0]):
            start = piece * PIECE
            count = min(X.shape[0] - start, PIECE)
            gradient = np.zeros(WIDTH, np.float32)
            eta, out = np.empty((1, count)), np.empty((3, count))
            for i in range(count):
                total = np.float32(0)
                for j in range(WIDTH):
                    total += X[start + i, j] * weights[j]
                eta[0, i] = total
            link(eta, eta, y[start : start + count], sums[0, :0], 1, out)
            for i in range(count):
                slope = np.float32(out[1, i])
                for j in range(WIDTH):
                    gradient[j] += slope * X[start + i, j]
            sums[piece, :WIDTH] = gradient
            sums[piece, WIDTH] = out[0].sum()

    weights = np.zeros(WIDTH, np.float32)

    def logp(z):
        theta = centre + factor @ z
        weights[:d] = theta
        density(padded, y, weights, sums)
        total = sums.sum(axis=0)
        value = total[WIDTH] - theta @ theta / 200
        return value, factor.T @ (total[:d] - theta / 100)

    return logp


def main(job: str) -> None:
    """Run the job that a JSON object describes."""
    options = json.loads(job)
    import nutpie
    from nutpie.compiled_pyfunc import from_pyfunc
    from peer_data import load_rows

    X, y, centre, factor = load_rows(options["folder"])
    d = len(centre)
    calls = [0]
    began = time.perf_counter()
    logp = build(X, y, centre, factor)
    logp(np.zeros(d))
    compiled = time.perf_counter()

    def counted(z):
        calls[0] += 1
        return logp(z)

    model = from_pyfunc(
        d,
        lambda: counted,
        lambda seed1, seed2, chain: lambda z: {"beta": centre + factor @ z},
        [np.dtype("float64")],
        [(d,)],
        ["beta"],
        make_initial_point_fn=lambda seed: np.zeros(d),
    )

    settings = {"tune": options["warmup"], "draws": options["draws"], "chains": 1, "cores": 1}
    start, used = time.perf_counter(), time.process_time()
    trace = nutpie.sample(model, **settings, seed=0, progress_bar=False)
    seconds, cpu = time.perf_counter() - start, time.process_time() - used
    np.save(f"{options['folder']}/draws.npy", np.asarray(trace.posterior["beta"])[0])
    steps = np.asarray(trace.sample_stats["n_steps"])[0]
    share = steps.sum() / calls[0]  # a gradient costs the same before and after warm-up
    result = {
        "setup_seconds": start - began + seconds * (1 - share),
        "compile_seconds": compiled - began,
        "seconds": seconds * share,
        "cpu_seconds": cpu * share,
        "iterations": len(steps),
        "steps": float(steps.mean()),
        "gradient_seconds": seconds / calls[0],
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "version": f"nutpie {nutpie.__version__}",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
