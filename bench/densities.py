"""Links generated from the text of a density, beside those written by hand and SymPy's.

Run as ``python -m bench.densities``; with SymPy in ``PYTHONPATH`` its column, too. Prints the table
of ``docs/measurements/densities.md``. Times are the least of 300 repetitions of 1,300 rows, one
core, warm, called through a pointer as a sampler does; first use is the time to write and compile a
link into an empty cache; errors are the largest of value, gradient and Hessian, relative to the
largest of them, at 200 points, against mpmath with 50 digits.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from typing import Any

import mpmath
import numba
import numpy as np

from streammc import models
from streammc.models import user
from streammc.models.check import evaluate
from streammc.models.glm.gamma_log import VaryingGamma
from streammc.models.glm.gaussian_identity import VaryingGaussian
from streammc.models.glm.negative_binomial_log import VaryingNegativeBinomial
from streammc.numerics.jit import LINK_TYPE, i8, jit, matrix, vector


def of_class(family: Any) -> tuple[str, tuple[str, ...], dict[str, str]]:
    """Return the text of a family whose scale may vary; its link is written by hand where not."""
    scales = tuple(each.name for each in family.parameters if not each.n_linear)
    return family.log_density, scales, dict(family.where)


STATED: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    "logistic": ("y * eta - log1pexp(eta)", (), {}),
    "exponential": ("-eta - y * exp(-eta)", (), {}),
    "poisson": ("y * eta - exp(eta) - log_factorial(y)", (), {}),
    "gaussian": of_class(VaryingGaussian),
    "gamma": of_class(VaryingGamma),
    "negative-binomial": of_class(VaryingNegativeBinomial),
    "student-t": (
        "log_gamma(0.5 * nu + 0.5) - log_gamma(0.5 * nu) - 0.5 * log(pi * nu) - log(sigma)"
        " - 0.5 * (nu + 1) * log1p(z**2 / nu)",
        ("sigma", "nu"),
        {"z": "(y - eta) / sigma"},
    ),
}
"""Families with a link written by hand: text, scales, further names."""
ROWS, REPETITIONS = 1300, 300


@jit(numba.void(LINK_TYPE, matrix, matrix, vector, vector, i8, matrix, i8))
def repeat(link, eta, X, y, constants, order, out, times):  # type: ignore[no-untyped-def]
    for _ in range(times):
        link(eta, X, y, constants, order, out)


def stated(name: str) -> Any:
    text, scales, where = STATED[name]
    return user(f"{name} as text", text, scales=scales, where=where)


def points(name: str, rows: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(2)
    known = getattr(models, name.replace("-", "_"))()
    eta = rng.standard_normal((1 + len(STATED[name][1]), rows))
    eta[1:] = eta[1:, :1]
    return eta, np.minimum(np.abs(known.simulate(eta, rng)), 1e6) + (name == "gamma") * 1e-3


def nanoseconds(model: Any, eta: Any, y: Any, order: int) -> float:
    out = np.empty((len(evaluate(model, eta[:, :1], y[:1])), len(y)))
    X, constants = np.zeros((0, len(y))), np.ascontiguousarray(model.constants)
    best = math.inf
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        repeat(model.link, eta, X, y, constants, order, out, 5)
        best = min(best, time.perf_counter() - began)
    return best / 5 / len(y) * 1e9


def exact(name: str, eta: Any, y: float) -> Any:
    """Return value, gradient and Hessian by mpmath, differentiated numerically at 50 digits."""
    from tests.families import FAMILIES  # type: ignore[import-not-found]

    log_lik = FAMILIES[name].log_lik
    p, at = len(eta), [mpmath.mpf(float(each)) for each in eta]
    y = mpmath.mpf(float(y))
    function = lambda *each: log_lik(y, *each)  # noqa: E731
    rows = [log_lik(y, *at)]
    orders = [tuple(int(a == k) for a in range(p)) for k in range(p)]
    orders += [
        tuple(int(a == j) + int(a == k) for a in range(p)) for j in range(p) for k in range(j, p)
    ]
    rows += [mpmath.diff(function, tuple(at), each) for each in orders]
    return rows


def error(model: Any, name: str, eta: Any, y: Any) -> float:
    found, worst = evaluate(model, eta, y), 0.0
    for i in range(0, len(y), len(y) // 200):
        truth = exact(name, eta[:, i], y[i])
        size = max(max(abs(each) for each in truth), mpmath.mpf(1))
        gaps = (abs(mpmath.mpf(float(a)) - b) for a, b in zip(found[:, i], truth, strict=True))
        worst = max(worst, float(max(gaps) / size))
    return worst


def by_sympy(name: str) -> tuple[Any, float]:
    """Return a link of SymPy's derivatives and common subexpressions, and the seconds to write."""
    import sympy
    from sympy.printing.pycode import PythonCodePrinter

    began = time.perf_counter()
    text, scales, where = STATED[name]
    eta, y, *raw = sympy.symbols(["v_eta", "v_y", *(f"v_{each}" for each in scales)], real=True)
    names: dict[str, Any] = {"eta": eta, "y": y, "pi": sympy.pi, "log": sympy.log, "exp": sympy.exp}
    names |= {each: sympy.exp(log) for each, log in zip(scales, raw, strict=True)}
    names |= {
        "log_gamma": sympy.loggamma,
        "log_factorial": lambda k: sympy.loggamma(k + 1),
        "log_gamma_ratio": lambda a, k: sympy.loggamma(a + k) - sympy.loggamma(a),
        "log1p": lambda x: sympy.log(1 + x),
        "log1pexp": lambda x: sympy.log(1 + sympy.exp(x)),
        "excess": lambda x: sympy.exp(x) - 1 - x,
    }
    for each, part in where.items():
        names[each] = sympy.sympify(part, locals=names)
    value = sympy.sympify(text, locals=names)
    inputs = [eta, *raw]
    wanted = [value, *(sympy.diff(value, a) for a in inputs)]
    wanted += [sympy.diff(value, a, b) for j, a in enumerate(inputs) for b in inputs[j:]]

    class Printer(PythonCodePrinter):
        def _print_loggamma(self, e: Any) -> str:
            return f"log_gamma({self._print(e.args[0])})"

        def _print_polygamma(self, e: Any) -> str:
            return f"{'digamma' if e.args[0] == 0 else 'trigamma'}({self._print(e.args[1])})"

    lines = ["import math", "from streammc.numerics.special import digamma, log_gamma, trigamma"]
    lines += ["def link(eta, X, y, constants, order, out):"]
    for order in range(3):
        count = (1, 1 + len(inputs), len(wanted))[order]
        shared, results = sympy.cse(wanted[:count], symbols=sympy.numbered_symbols("t"))
        lines += [f"    if order == {order}:", "        for i in range(y.shape[0]):"]
        printed = [(str(a), Printer().doprint(b)) for a, b in shared]
        printed += [(f"out[{k}, i]", Printer().doprint(b)) for k, b in enumerate(results)]
        taken = [f"{symbol} = eta[{k}, i]" for k, symbol in enumerate(inputs)]
        body = [*taken, f"{y} = y[i]", *(f"{target} = {source}" for target, source in printed)]
        lines += [f"            {line}" for line in body]
    space: dict[str, Any] = {}
    exec("\n".join(lines), space)
    spent = time.perf_counter() - began
    return user(f"{name} by SymPy", link=numba.njit(space["link"]), scales=scales), spent


def first_use(name: str, generated: bool) -> float:
    """Return the seconds of the first use in a new process with an empty cache."""
    made = f"stated({name!r})" if generated else f"models.{name.replace('-', '_')}()"
    code = (
        "from bench.densities import *\nimport time\nlogistic = models.logistic().link.ready()\n"
        f"began = time.perf_counter()\n{made}.link.ready()\nprint(time.perf_counter() - began)"
    )
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run(
            [sys.executable, "-c", code],
            env={**__import__("os").environ, "STREAMMC_CACHE_DIR": folder},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    return float(out.stdout.strip().splitlines()[-1])


def main() -> None:
    mpmath.mp.dps = 50
    try:
        import sympy

        print(f"sympy {sympy.__version__}")
        has_sympy = True
    except ImportError:
        has_sympy = False
    print("| family | | order 0, ns a row | order 1 | order 2 | error | first use, s |")
    print("|---|---|---|---|---|---|---|")
    facts = {}
    for name in STATED:
        eta, y = points(name, ROWS)
        links = {"by hand": getattr(models, name.replace("-", "_"))(), "text": stated(name)}
        spent = math.nan
        if has_sympy:
            links["SymPy"], spent = by_sympy(name)
        for kind, model in links.items():
            times = [nanoseconds(model, eta, y, order) for order in range(3)]
            first = spent if kind == "SymPy" else first_use(name, kind == "text")
            worst = error(model, name, eta, y)
            facts[f"{name}, {kind}"] = [*times, worst, first]
            shown = " | ".join(f"{each:.1f}" for each in times)
            print(f"| {name} | {kind} | {shown} | {worst:.1e} | {first:.2f} |", flush=True)
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
