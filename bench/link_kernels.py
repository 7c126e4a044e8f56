"""Nanoseconds and error of the links, against loops over the C library's functions.

Run as ``python bench/link_kernels.py``. Prints one JSON object, then the tables of
``docs/explanation/link-kernels.md``. Times are the least of 3000 repetitions, one
core, warm, called from compiled code through a function pointer as a sampler does;
errors are the largest over 20,000 predictors, against mpmath with 50 digits.
"""

from __future__ import annotations

import datetime
import json
import math
import platform
import time
from pathlib import Path
from typing import Any

import mpmath
import numba
import numpy as np
from numba import types

from streammc import registry
from streammc.numerics.jit import LINK_SIGNATURE, LINK_TYPE, i8, inline, jit, matrix, vector
from streammc.numerics.special import exp, log1p_unit, log_factorial

SIZES = (100, 1300)
REPETITIONS = 3000
ROWS = 20_000


@jit(LINK_SIGNATURE)
def logistic_libm(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    predictor, value, slope, curve = eta[0], out[0], out[1], out[2]
    for i in range(y.shape[0]):
        sign = 1.0 - 2.0 * y[i]
        a = sign * predictor[i]
        e = math.exp(-abs(a))
        value[i] = -(max(a, 0.0) + math.log1p(e))
        if order >= 1:
            slope[i] = -sign * ((e if a < 0.0 else 1.0) / (1.0 + e))
        if order == 2:
            curve[i] = -e / ((1.0 + e) * (1.0 + e))


@jit(LINK_SIGNATURE)
def poisson_libm(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    predictor, value, slope, curve = eta[0], out[0], out[1], out[2]
    for i in range(y.shape[0]):
        rate = math.exp(predictor[i])
        value[i] = y[i] * predictor[i] - rate - math.lgamma(y[i] + 1.0)
        if order >= 1:
            slope[i] = y[i] - rate
        if order == 2:
            curve[i] = -rate


LIBM = {"logistic": logistic_libm, "poisson": poisson_libm}


@jit(types.void(LINK_TYPE, matrix, matrix, vector, vector, i8, matrix, i8))
def repeat(link, eta, X, y, constants, order, out, times):  # type: ignore[no-untyped-def]
    for _ in range(times):
        link(eta, X, y, constants, order, out)


def nanoseconds(links: tuple[Any, ...], eta: Any, y: Any, order: int) -> list[float]:
    """Return the least time per row of each link, measured in turns."""
    m = len(y)
    out = np.zeros((3, m))
    times = max(1, ROWS // m)
    best = [math.inf] * len(links)
    for _ in range(REPETITIONS):
        for k, link in enumerate(links):
            began = time.perf_counter()
            repeat(link, eta, np.zeros((0, m)), y, np.zeros(0), order, out, times)
            best[k] = min(best[k], time.perf_counter() - began)
    return [seconds / (times * m) * 1e9 for seconds in best]


def speeds() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    rows = []
    for name, libm in LIBM.items():
        model = registry.model(name)()
        for order in (0, 1, 2):
            for m in SIZES:
                eta = rng.normal(size=(1, m))
                y = model.simulate(eta, rng)
                ours, theirs = nanoseconds((model.link, libm), eta, y, order)
                rows.append({"link": name, "order": order, "m": m, "ns": ours, "ns_libm": theirs})
    return rows


def loop(leaf: Any) -> Any:
    @jit(vector(vector))
    def apply(x):  # type: ignore[no-untyped-def]
        out = np.empty_like(x)
        for i in range(x.shape[0]):
            out[i] = leaf(x[i])
        return out

    return apply


@inline
def libm_exp(x):  # type: ignore[no-untyped-def]
    return math.exp(x)


@inline
def libm_log1p(x):  # type: ignore[no-untyped-def]
    return math.log1p(x)


@inline
def libm_log_factorial(x):  # type: ignore[no-untyped-def]
    return math.lgamma(x + 1.0)


def errors() -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    spread = rng.uniform(-708.0, 709.0, 20_000)
    cases = [
        ("exp", exp, libm_exp, mpmath.exp, spread),
        ("log1p on [0, 1]", log1p_unit, libm_log1p, mpmath.log1p, rng.random(20_000)),
        (
            "log y!",
            log_factorial,
            libm_log_factorial,
            lambda y: mpmath.loggamma(y + 1),
            np.floor(10.0 ** rng.uniform(0.5, 9.0, 20_000)),
        ),
    ]
    rows = []
    mpmath.mp.dps = 50
    for name, ours, theirs, truth, x in cases:
        exact = [truth(mpmath.mpf(float(at))) for at in x]
        found = {}
        for key, leaf in (("error", ours), ("error_libm", theirs)):
            values = loop(leaf)(x)
            found[key] = max(float(abs(v / t - 1)) for v, t in zip(values, exact, strict=True))
        rows.append({"function": name, **found})
    return rows


def processor() -> str:
    """Return the model name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def main() -> None:
    result = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "processor": processor(),
        "numba": numba.__version__,
        "speed": speeds(),
        "accuracy": errors(),
    }
    print(json.dumps(result))
    print(f"\n{result['processor']}, numba {result['numba']}, {result['date']}\n")
    print("| link | order | rows | ns/row | ns/row, C library | ratio |\n|---|---|---|---|---|---|")
    for row in result["speed"]:
        print(
            f"| {row['link']} | {row['order']} | {row['m']} | {row['ns']:.1f} | "
            f"{row['ns_libm']:.1f} | {row['ns_libm'] / row['ns']:.1f} |"
        )
    print("\n| function | relative error | C library |\n|---|---|---|")
    for row in result["accuracy"]:
        print(f"| {row['function']} | {row['error']:.1e} | {row['error_libm']:.1e} |")


if __name__ == "__main__":
    main()
