"""Nanoseconds and error of the links, against loops over the C library's functions.

Run as ``python bench/link_kernels.py``. Prints one JSON object, then the tables of
``docs/measurements/link-kernels.md``. Times are the least of 1000 repetitions, one
core, warm, called from compiled code through a function pointer as a sampler does;
errors are the largest over 2000 or 20,000 arguments, against mpmath with 50 digits.
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
from streammc.numerics.special import exp, log, log1p_unit, log_factorial, log_ndtr, rising

SIZES = (100, 1300)
REPETITIONS = 1000
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


@jit(LINK_SIGNATURE)
def gaussian_libm(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    for i in range(y.shape[0]):
        precision = math.exp(-eta[1, i])
        z = (y[i] - eta[0, i]) * precision
        out[0, i] = -0.5 * z * z - eta[1, i] - 0.9189385332046728
        if order >= 1:
            out[1, i] = z * precision
            out[2, i] = z * z - 1.0
        if order == 2:
            out[3, i] = -precision * precision
            out[4, i] = -2.0 * z * precision
            out[5, i] = -2.0 * z * z


@jit(LINK_SIGNATURE)
def student_t_libm(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    nu = constants[0]
    for i in range(y.shape[0]):
        precision = math.exp(-eta[1, i])
        z = (y[i] - eta[0, i]) * precision
        t = z * z / nu
        h = 1.0 / (1.0 + t)
        out[0, i] = constants[2] - eta[1, i] - 0.5 * (nu + 1.0) * math.log1p(t)
        pull = z * precision * h / nu
        if order >= 1:
            out[1, i] = (nu + 1.0) * pull
            out[2, i] = (nu + 1.0) * t * h - 1.0
        if order == 2:
            out[3, i] = -(nu + 1.0) * precision * precision / nu * h * h * (1.0 - t)
            out[4, i] = -2.0 * (nu + 1.0) * pull * h
            out[5, i] = -2.0 * (nu + 1.0) * t * h * h


@jit(LINK_SIGNATURE)
def probit_libm(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    for i in range(y.shape[0]):
        sign = 2.0 * y[i] - 1.0
        a = sign * eta[0, i]
        chance = 0.5 * math.erfc(-a * 0.7071067811865476)
        out[0, i] = math.log(chance)
        if order >= 1:
            mills = 0.3989422804014327 * math.exp(-0.5 * a * a) / chance
            out[1, i] = sign * mills
            if order == 2:
                out[2, i] = -mills * (a + mills)


CASES = [
    ("logistic", {}, logistic_libm),
    ("probit", {}, probit_libm),
    ("binomial", {}, None),
    ("poisson", {}, poisson_libm),
    ("negative-binomial", {}, None),
    ("gaussian", {}, gaussian_libm),
    ("student-t", {"df": 5.0}, student_t_libm),
    ("student-t", {}, None),
]
"""Model, options, and a link over the C library, which has no digamma."""
SCALES = {"sigma": 1.3, "nu": 5.0, "phi": 2.0}


@jit(types.void(LINK_TYPE, matrix, matrix, vector, vector, i8, matrix, i8))
def repeat(link, eta, X, y, constants, order, out, times):  # type: ignore[no-untyped-def]
    for _ in range(times):
        link(eta, X, y, constants, order, out)


def nanoseconds(
    links: tuple[Any, ...], eta: Any, y: Any, order: int, constants: Any
) -> list[float]:
    """Return the least time per row of each link, measured in turns."""
    p, m = eta.shape
    out = np.zeros((1 + p + p * (p + 1) // 2, m))
    times = max(1, ROWS // m)
    best = [math.inf] * len(links)
    for _ in range(REPETITIONS):
        for k, link in enumerate(links):
            began = time.perf_counter()
            repeat(link, eta, np.zeros((0, m)), y, constants, order, out, times)
            best[k] = min(best[k], time.perf_counter() - began)
    return [seconds / (times * m) * 1e9 for seconds in best]


def speeds() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    rows = []
    for name, options, libm in CASES:
        model = registry.model(name)(**options)
        shown = ", ".join([name, *(f"{key} = {value:g}" for key, value in options.items())])
        for order in (0, 1, 2):
            for m in SIZES:
                shared = np.log([SCALES[scale] for scale in model.scales])[:, None] + np.zeros(m)
                eta = np.vstack([rng.normal(size=(1, m)), shared])
                y = model.simulate(eta, rng)
                links = (model.link,) if libm is None else (model.link, libm)
                ours, *theirs = nanoseconds(links, eta, y, order, model.constants)
                row = {"link": shown, "order": order, "m": m, "ns": ours}
                rows.append({**row, "ns_libm": theirs[0] if theirs else None})
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
def libm_log(x):  # type: ignore[no-untyped-def]
    return math.log(x)


@inline
def libm_log_ndtr(x):  # type: ignore[no-untyped-def]
    return math.log(0.5 * math.erfc(-x * 0.7071067811865476))


@inline
def half_step(x):  # type: ignore[no-untyped-def]
    return rising(x, math.log(x), 0.5)[0]


@inline
def libm_half_step(x):  # type: ignore[no-untyped-def]
    return math.lgamma(x + 0.5) - math.lgamma(x)


def exact_log_ndtr(x: Any) -> Any:
    return mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2)


def exact_half_step(x: Any) -> Any:
    return mpmath.loggamma(x + mpmath.mpf(0.5)) - mpmath.loggamma(x)


@inline
def libm_log_factorial(x):  # type: ignore[no-untyped-def]
    return math.lgamma(x + 1.0)


def errors() -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    spread = rng.uniform(-708.0, 709.0, 20_000)
    cases = [
        ("exp", exp, libm_exp, mpmath.exp, spread),
        ("log1p on [0, 1]", log1p_unit, libm_log1p, mpmath.log1p, rng.random(20_000)),
        ("log", log, libm_log, mpmath.log, 10.0 ** rng.uniform(-300, 300, 20_000)),
        (
            "log Phi on [-30, 8]",
            log_ndtr,
            libm_log_ndtr,
            exact_log_ndtr,
            rng.uniform(-30.0, 8.0, 2000),
        ),
        (
            "log Gamma(x + 1/2) - log Gamma(x), x in [10, 1e8]",
            half_step,
            libm_half_step,
            exact_half_step,
            10.0 ** rng.uniform(1, 8, 2000),
        ),
        (
            "log y!",
            log_factorial,
            libm_log_factorial,
            lambda y: mpmath.loggamma(y + 1),
            np.floor(10.0 ** rng.uniform(0.5, 9.0, 20_000)),
        ),
    ]
    rows = []
    mpmath.mp.dps = 50  # log Phi: of erfc itself, which keeps its digits
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
        theirs = row["ns_libm"]
        compared = f"{theirs:.1f} | {theirs / row['ns']:.1f}" if theirs else " | "
        print(f"| {row['link']} | {row['order']} | {row['m']} | {row['ns']:.1f} | {compared} |")
    print("\n| function | relative error | C library |\n|---|---|---|")
    for row in result["accuracy"]:
        print(f"| {row['function']} | {row['error']:.1e} | {row['error_libm']:.1e} |")


if __name__ == "__main__":
    main()
