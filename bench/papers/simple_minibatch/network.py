"""The network of Chen et al. 2016 (their Figure 4): SGHMC with and without a test, and Adagrad.

28-8-4-1 with sigmoid layers, on the 10,984 rows of HIGGS that streammc ships and on a million
rows simulated from a random network. The paper's settings: eta_i = 0.01 / (i + 1)^0.4,
alpha = 0.1, T_i = max(1, 1000 / (i + 1)^0.5), m = 200, with their factor 1000 kept in
proportion to the rows; no dropout and no batch normalisation. The tested chains are
``mh-fixed`` of streammc, SGHMC without a test and Adagrad loops in NumPy over the same link.

Run as ``python -m bench.papers.simple_minibatch.network WORK [--quick]``. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import streammc
from bench.papers.drawing import save
from bench.papers.hmc_ecs.higgs_store import shipped
from bench.papers.markdown import table
from streammc.control_variates.bound import bind
from streammc.control_variates.certify import without_pass
from streammc.likelihood.temperature import Schedule
from streammc.numerics.process_limits import single_threaded
from streammc.samplers import mh_fixed
from streammc.samplers.common.sampler import RunRequest, Setup
from streammc.stores import open_store
from streammc.stores.simulation import simulate

Array = NDArray[np.float64]
M, BATCHES, ALPHA = 200, 5, 0.1
LOOKED_AT = 50_000
RATES, POWERS = (0.003, 0.01, 0.03, 0.1, 0.3), (0.0, 0.4)
"""Adagrad's base rates and the powers by which they fall: (0.01, 0.4) is the paper's."""
SEED = 8
COLOURS = ("#7a3e9d", "#2a7f3e", "#c0392b", "#8a8a8a", "#2c6fbb", "#b8860b")


NOTES = """Adagrad's rescaling of the gradient is the metric of SGHMC here, for its noise as well.
SGHMC without a test ends above Adagrad with the paper's step, as published, and not above a tuned
Adagrad. The paper finds that the test changes little; here it costs most of the way. A decision
reads 1,400 rows, 200 for the gradient and 1,200 for the test, where the others read 200. A step
long enough to learn fast has a standard deviation of Delta' above 1.2, and is skipped. And Barker's
function accepts at most about half of the shortest steps, where the momentum of a reversible SGHMC
proposal turns round at each rejection: the tested chains diffuse."""


class Data(NamedTuple):
    """Rows of a part, and the chain's budget."""

    name: str
    store: Any
    X: Array
    y: Array
    passes: float


@dataclass
class Curve:
    """The log-likelihood of a row, by passes over the rows."""

    passes: list[float]
    value: list[float]
    facts: dict[str, float]


def eta(n: int) -> float:
    """Return the paper's step size of iteration ``n``."""
    return 0.01 / (n + 1) ** 0.4


class Scale:
    """Adagrad's rescaling of the gradient: by the root of the mean of its squares.

    As the metric of SGHMC it rescales the noise as well, so that what is sampled stays:
    ``eta / rms(N g / T)`` multiplies gradient and noise.
    """

    def __init__(self, start: Array) -> None:
        self.squares, self.n = np.zeros_like(start), 0

    def add(self, g: Array) -> None:
        """Add the mean gradient of a minibatch."""
        self.squares += g * g
        self.n += 1

    def inverse(self, factor: float) -> Array:
        """Return one over the root mean square of ``factor`` gradients, (d,)."""
        return 1.0 / (factor * np.sqrt(self.squares / self.n) + 1.0)


class Net:
    """Log-likelihood and gradient of some rows through streammc's link."""

    def __init__(self, q: int) -> None:
        self.model = streammc.models.network([8, 4])
        self.p, self.first, self.q = self.model.n_linear + self.model.n_scalar, 8, q

    def predictors(self, theta: Array, X: Array) -> Array:
        """Return (p, m)."""
        out = np.empty((self.p, len(X)))
        out[: self.first] = theta[: self.first * self.q].reshape(self.first, self.q) @ X.T
        out[self.first :] = theta[self.first * self.q :, None]
        return out

    def log_lik(self, theta: Array, X: Array, y: Array) -> float:
        """Return the mean over rows."""
        out = np.empty((1, len(X)))
        self.model.link(self.predictors(theta, X), X.T, y, self.model.constants, 0, out)
        return float(out.mean())

    def slopes(self, theta: Array, X: Array, y: Array) -> Array:
        """Return (p, m) derivatives in the predictors."""
        out = np.empty((1 + self.p, len(X)))
        self.model.link(self.predictors(theta, X), X.T, y, self.model.constants, 1, out)
        return out[1:]

    def gradient(self, slopes: Array, X: Array) -> Array:
        """Return (d,) mean over rows; also of squares, where both are squared."""
        head = slopes[: self.first] @ X / len(X)
        return np.concatenate([head.ravel(), slopes[self.first :].mean(axis=1)])


def minibatches(data: Data, seed: int) -> Iterator[tuple[Array, Array]]:
    """Yield rows drawn with replacement."""
    rng = np.random.default_rng(seed)
    while True:
        rows = rng.integers(0, len(data.y), M)
        yield data.X[rows], data.y[rows]


def looks(total: int) -> set[int]:
    """Return the iterations after which the log-likelihood is looked at."""
    return {0, *np.unique(np.geomspace(1, total, 40).astype(int)).tolist()}


def adagrad(data: Data, net: Net, start: Array, rate: float, power: float) -> Curve:
    """Return the curve of Adagrad: each coordinate by the root of its sum of squares.

    The mean square, and the rate of the paper, where ``power`` is not 0: the sum would make
    the steps fall as n^-0.9, and nothing would be learnt.
    """
    theta, squares = start.copy(), np.zeros_like(start)
    total = int(data.passes * len(data.y) / M)
    at, curve = looks(total), Curve([], [], {})
    for n, (X, y) in enumerate(minibatches(data, SEED)):
        if n in at:
            curve.passes.append(n * M / len(data.y))
            curve.value.append(net.log_lik(theta, data.X[:LOOKED_AT], data.y[:LOOKED_AT]))
        if n == total:
            return curve
        g = net.gradient(net.slopes(theta, X, y), X) - theta / len(data.y)
        squares += g * g
        mean = squares / (n + 1) if power else squares
        theta += rate / (n + 1) ** power * g / (np.sqrt(mean) + 1e-12)
    raise AssertionError


def untested(data: Data, net: Net, start: Array) -> Curve:
    """Return the curve of SGHMC without a test, its metric that of :class:`Scale`.

    The noise of the gradient is estimated by the empirical Fisher, as in the paper.
    """
    rng = np.random.default_rng(SEED + 1)
    theta, v, scale = start.copy(), np.zeros_like(start), Scale(start)
    n_rows, schedule = len(data.y), Schedule.parse(temperature(data))
    total = int(data.passes * n_rows / M)
    heat = schedule.at(0, total + 1)
    at, curve = looks(total), Curve([], [], {})
    for n, (X, y) in enumerate(minibatches(data, SEED)):
        if n in at:
            curve.passes.append(n * M / n_rows)
            curve.value.append(net.log_lik(theta, data.X[:LOOKED_AT], data.y[:LOOKED_AT]))
        if n == total:
            return curve
        slopes, factor, step = net.slopes(theta, X, y), n_rows / heat[n], eta(n)
        g = net.gradient(slopes, X)
        scale.add(g)
        metric = scale.inverse(factor)
        noise = factor**2 / M * (net.gradient(slopes**2, X**2) - g * g) * metric
        spread = 2.0 * step * metric * np.maximum(ALPHA - 0.5 * step * noise, 0.0)
        v += step * metric * (factor * g - theta) - ALPHA * v
        v += np.sqrt(spread) * rng.standard_normal(len(v))
        theta += v
    raise AssertionError


def temperature(data: Data) -> str:
    """Return the paper's schedule, its start in proportion to the rows."""
    return f"{max(len(data.y) / 1000.0, 1.0):g}:sqrt"


def tested(data: Data, net: Net, remedy: str) -> Curve:
    """Return the curve of ``mh-fixed`` with SGHMC proposals in the metric of :class:`Scale`.

    With ``skip`` and ``grow`` the step size is the paper's, set every few iterations, as the
    metric is; with ``shrink`` it begins there, and falls where the standard deviation of
    Delta' is too large. A proposal is one step: with 5 or 20 the standard deviation is too large
    at the paper's step size in 99 % of the decisions and more.
    """
    model, start = net.model, without_pass(bind(data.store, net.model))
    sampler = mh_fixed(
        proposal="sghmc", control_variate="none", friction=ALPHA, step_size=eta(0) ** 0.5,
        covariance="diagonal", subsample_size=M, gradient_size=M, batches=BATCHES, remedy=remedy,
    )  # fmt: skip
    schedule = Schedule.parse(temperature(data))
    request = RunRequest(data.store, model, temperature=schedule)
    kernel = sampler.problem(request, Setup(sampler, start, None, "")).kernel(SEED, 0)
    kernel.initialise()
    kernel.space.now.z[:] = 0.0
    theta, scale, rows = start.theta_star, Scale(start.theta_star), minibatches(data, SEED)
    curve, done, kept = Curve([], [], {}), 0, []
    while True:
        curve.passes.append((kernel.rows_gathered + M * scale.n) / len(data.y))
        curve.value.append(net.log_lik(theta, data.X[:LOOKED_AT], data.y[:LOOKED_AT]))
        if curve.passes[-1] >= data.passes:
            break
        for _ in range(10):
            X, y = next(rows)
            scale.add(net.gradient(net.slopes(theta, X, y), X))
        metric = scale.inverse(len(data.y) / schedule.at(done, 1)[0])
        kernel.space.decision.shape[...] = np.diag(np.sqrt(metric))
        if remedy != "shrink":
            kernel.space.decision.values["step"] = eta(done) ** 0.5
        found = kernel.advance(max(5, done // 20), warmup=False)
        theta, done = found["theta"][-1], done + len(found["theta"])
        kept.append(found)
    for name in ("forced", "acceptance_rate", "step_size", "temperature"):
        values = np.concatenate([np.ravel(found[name]) for found in kept]).astype(float)
        curve.facts[name] = float(values.mean())
        curve.facts["last " + name] = float(values[-max(len(values) // 10, 1) :].mean())
    curve.facts["iterations"] = float(done)
    return curve


def measure(data: Data) -> dict[str, Curve]:
    """Return the curves of one part; Adagrad's rate is the best after a fifth of the passes."""
    net = Net(data.X.shape[1])
    start = without_pass(bind(data.store, net.model)).theta_star
    found = {
        f"mh-fixed, {remedy}": tested(data, net, remedy) for remedy in ("skip", "grow", "shrink")
    }
    found["SGHMC without a test"] = untested(data, net, start)
    short = data._replace(passes=data.passes / 5.0)
    tried = {(r, p): adagrad(short, net, start, r, p).value[-1] for r in RATES for p in POWERS}
    rate, power = max(tried, key=lambda key: tried[key])
    found["Adagrad, the paper's step"] = adagrad(data, net, start, 0.01, 0.4)
    found["Adagrad, tuned"] = adagrad(data, net, start, rate, power)
    found["Adagrad, tuned"].facts.update(rate=rate, power=power)
    return found


def parts(work: Path, quick: bool) -> Iterator[Data]:
    """Yield both tables."""
    _, covariates, y = shipped()
    X = np.c_[np.ones(len(y)), (covariates - covariates.mean(axis=0)) / covariates.std(axis=0)]
    names = ["Intercept", *(f"x{j}" for j in range(1, X.shape[1]))]
    store = streammc.from_arrays(X, y, feature_names=names)
    yield Data("HIGGS, 10,984 rows", store, X, y, 60.0 if quick else 1000.0)
    rows = 100_000 if quick else 1_000_000
    path = work / f"network-{rows}"
    if not path.exists():
        simulate("network", path, rows, 29, 1)
    store = open_store(path)
    X, y = (np.array(part[:rows], dtype=np.float64) for part in store.rows().arrays[:2])
    yield Data(f"simulated, {rows:,} rows", store, X, y, 2.0 if quick else 20.0)


def draw(results: dict[str, dict[str, Curve]], path: Path) -> None:
    """Draw log-likelihood against passes, a panel per table."""
    figure = Figure(figsize=(9.0, 3.4), layout="constrained")
    for panel, (name, curves) in zip(figure.subplots(1, 2), results.items(), strict=True):
        for (label, curve), colour in zip(curves.items(), COLOURS, strict=True):
            panel.plot(curve.passes[1:], curve.value[1:], color=colour, lw=1.4, label=label)
        panel.set_xscale("log")
        panel.set_title(name, fontsize=8)
        panel.set_xlabel("passes over the rows", fontsize=8)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=7)
    figure.axes[0].set_ylabel("log-likelihood of a row", fontsize=8)
    figure.axes[0].legend(fontsize=7, frameon=False)
    save(figure, path)


def lines_of(results: dict[str, dict[str, Curve]]) -> list[str]:
    """Return a table: where each curve ends, and what its test did."""
    rows = []
    for name, curves in results.items():
        for label, curve in curves.items():
            facts = curve.facts
            tests = ("", "", "")
            if "forced" in facts:
                tests = (
                    f"{facts['iterations']:,.0f}",
                    f"{facts['acceptance_rate']:.2f}, {facts['last acceptance_rate']:.2f}",
                    f"{facts['forced']:.2f}, {facts['last forced']:.2f}",
                )
            if "rate" in facts:
                label += f" ({facts['rate']:g}, falling as n^-{facts['power']:g})"
            rows.append((name, label, f"{curve.value[-1]:.4f}", *tests))
    head = ("rows", "method", "log-likelihood of a row at the end", "decisions",
            "accepted: all, last tenth", "skipped: all, last tenth")  # fmt: skip
    return [*table(head, rows), "", *NOTES.splitlines()]


def run(work: Path, pictures: Path | None = None, *, quick: bool = False) -> dict[str, Any]:
    """Measure both tables and draw the figure; return ``lines`` of markdown and the curves."""
    results = {}
    for data in parts(work, quick):
        begun = time.perf_counter()
        with single_threaded():
            results[data.name] = measure(data)
        print(f"{data.name}: {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    draw(results, (pictures or work) / "network.png")
    curves = {
        name: {label: vars(curve) for label, curve in found.items()}
        for name, found in results.items()
    }
    return {"lines": lines_of(results), "curves": curves}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    print("\n".join(run(given.work, quick=given.quick)["lines"]))
