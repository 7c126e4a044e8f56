"""Mixed models at automatic settings against the posterior with all groups: ten simulated tables.

    python bench/mixed_cases.py [CASE ...] [--write]

Each table is written as Parquet, ingested and sampled through the command line without a setting,
and sampled again with all groups at every step (``hmc``, or ``laplace`` for a million rows).
Prints for each case the worst parameter's difference of means in posterior sd and in Monte Carlo
standard errors, and the ratio of the sds; a case fails where the means differ by more than 0.1 sd
and 4.5 errors, or the sds by more than 10 % and 4.5 errors. ``--write`` puts the table into
``docs/measurements/mixed-models.md``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from page import machine, publish

COMMAND = str(Path(sys.executable).with_name("streammc"))


class Case(NamedTuple):
    """A simulated table: its rows, the model and the formula."""

    text: str
    make: Callable[[np.random.Generator], pd.DataFrame]
    model: str = "logistic"
    formula: str = "y ~ x + (1 | g)"
    reference: str = "hmc --draws 1000"
    """Sampler of the posterior with all groups, and its options."""


def _draw(rng: np.random.Generator, eta: np.ndarray, model: str) -> np.ndarray:
    if model == "poisson":
        return rng.poisson(np.exp(eta))
    return (rng.random(len(eta)) < 1.0 / (1.0 + np.exp(-eta))).astype(int)


def _even(
    groups: int, size: int, tau: float, intercept: float = -0.5, slope: float = 0.5,
    model: str = "logistic", tau_slope: float = 0.0,
) -> Callable[[np.random.Generator], pd.DataFrame]:  # fmt: skip
    """Return a maker of groups of one size, with random intercepts and slopes."""

    def make(rng: np.random.Generator) -> pd.DataFrame:
        g = np.repeat(np.arange(groups), size)
        x = rng.normal(size=len(g))
        eta = intercept + slope * x + tau * rng.normal(size=groups)[g]
        eta += x * (tau_slope * rng.normal(size=groups))[g]
        return pd.DataFrame({"y": _draw(rng, eta, model), "x": x, "g": g})

    return make


def _zipf(rng: np.random.Generator) -> pd.DataFrame:
    sizes = np.maximum(1e4 / np.arange(1, 2001), 1.0).astype(int)
    g = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(size=len(g))
    eta = -4.5 + 0.5 * x + 0.8 * rng.normal(size=len(sizes))[g]
    return pd.DataFrame({"y": _draw(rng, eta, "logistic"), "x": x, "g": g})


def _few_rows(rng: np.random.Generator) -> pd.DataFrame:
    sizes = rng.integers(1, 6, 100_000)
    g = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(size=len(g))
    eta = -0.5 + 0.5 * x + 2.0 * rng.normal(size=len(sizes))[g]
    return pd.DataFrame({"y": _draw(rng, eta, "logistic"), "x": x, "g": g})


def _rare_dummies(rng: np.random.Generator) -> pd.DataFrame:
    g = np.repeat(np.arange(10_000), 20)
    frame = pd.DataFrame({"g": g, "x": rng.normal(size=len(g))})
    effects = rng.normal(size=30)
    kind = np.where(rng.random(len(g)) < 0.02, rng.integers(0, 30, len(g)), 30)
    frame["kind"] = np.where(kind < 30, np.char.add("k", kind.astype(str)), "aa")
    eta = -0.5 + 0.5 * frame["x"].to_numpy() + np.append(effects, 0.0)[kind]
    frame["y"] = _draw(rng, eta + rng.normal(size=10_000)[g], "logistic")
    return frame


def _countries(rng: np.random.Generator) -> pd.DataFrame:
    g = np.repeat(np.arange(20_000), 10)
    x, country = rng.normal(size=len(g)), rng.integers(0, 30, len(g))
    eta = -0.5 + 0.5 * x + rng.normal(size=20_000)[g] + 0.5 * rng.normal(size=30)[country]
    label = np.char.add("c", country.astype(str))
    return pd.DataFrame({"y": _draw(rng, eta, "logistic"), "x": x, "g": g, "country": label})


SHORT_HMC = "hmc --chains 2 --warmup 300 --draws 500"
"""For cases in which an iteration with all groups takes a quarter of a second."""

CASES = {
    "even": Case("2,000 groups of 50", _even(2000, 50, 1.0)),
    "many": Case("100,000 groups of 10", _even(100_000, 10, 1.0), reference="laplace --draws 1000"),
    "zipf": Case("sizes 10,000 / rank, 1 % events", _zipf),
    "near-zero": Case("tau = 0.05", _even(2000, 50, 0.05)),
    "poisson": Case("Poisson, mean 36", _even(2000, 20, 0.5, 3.5, 0.2, "poisson"), "poisson"),
    "few-rows": Case("1 to 5 rows, tau = 2", _few_rows, reference="laplace --draws 1000"),
    "slope": Case(
        "intercept and slope",
        _even(2000, 50, 1.0, tau_slope=0.5),
        formula="y ~ x + (1 + x | g)",
        reference=SHORT_HMC,
    ),
    "slope-zero": Case(
        "intercept and slope, tau of slopes 0.05",
        _even(2000, 50, 1.0, tau_slope=0.05),
        formula="y ~ x + (1 + x | g)",
        reference="hmc --chains 2 --warmup 500 --draws 3000",
    ),
    "rare": Case(
        "10,000 groups, 30 rare dummies",
        _rare_dummies,
        formula="y ~ x + kind + (1 | g)",
        reference=SHORT_HMC,
    ),
    "countries": Case(
        "20,000 groups, 30 levels as columns",
        _countries,
        formula="y ~ x + (1 | country) + (1 | g)",
        reference=SHORT_HMC,
    ),
}


def _run(words: list[str], folder: Path) -> tuple[int, dict[str, Any], str]:
    """Run a command with ``--json``; return its exit code, document and errors."""
    done = subprocess.run(
        [COMMAND, *words, "--json"], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else {}, done.stderr


def measure(case: Case) -> list[str]:
    """Return the row of the table of one case, its verdict last."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        frame = case.make(np.random.default_rng(1))
        frame.sample(frac=1.0, random_state=2).to_parquet(folder / "t.parquet", index=False)
        words = ["ingest", "t.parquet", "s.zarr", "--formula", case.formula, "--seed", "1"]
        found: list[dict[str, Any]] = []
        for command in (
            words,
            ["sample", "s.zarr", "-o", "run", "--model", case.model, "--seed", "1"],
            ["sample", "s.zarr", "-o", "all", "--model", case.model, "--seed", "2",
             "--sampler", *case.reference.split()],
        ):  # fmt: skip
            code, document, error = _run(command, folder)
            if code:
                line = error.strip().splitlines()[-1][:200]
                return [case.text, f"{len(frame):,}", f"exit {code}: {line}", *[""] * 5]
            found.append(document)
    ours, reference = found[1]["parameters"], found[2]["parameters"]
    verdict, worst = "right", (0.0, 0.0, 1.0)
    for label, mine in ours.items():
        other = reference[label]
        sd = other["sd"]
        error = float(np.hypot(mine["mcse_mean"], other["mcse_mean"]))
        off = abs(mine["mean"] - other["mean"])
        ratio = mine["sd"] / sd
        of_sd = float(np.sqrt(0.5 / mine["ess_bulk"] + 0.5 / other["ess_bulk"]))  # of a normal
        if off > max(0.1 * sd, 4.5 * error) or abs(ratio - 1.0) > max(0.1, 4.5 * of_sd):
            verdict = f"off: {label}"
        worst = max(worst, (off / sd, off / error, ratio))
    sampling = found[1]["sampling"]
    return [
        case.text, f"{len(frame):,}", sampling["sampler"], f"{worst[0]:.2f}", f"{worst[1]:.1f}",
        f"{worst[2]:.3f}", f"{sampling['pass_seconds'] + sampling['warmup_seconds']:.0f}",
        f"{sampling['seconds']:.1f}", verdict,
    ]  # fmt: skip


def main() -> None:
    """Measure the cases asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", nargs="*", choices=[*CASES, []])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    head = [
        "table", "rows", "sampler", "worst mean, sd", "errors", "its sd, ratio", "set-up, s",
        "draws, s", "verdict",
    ]  # fmt: skip
    lines = [f"{machine()}:", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name in options.case or CASES:
        lines.append(f"| {' | '.join(measure(CASES[name]))} |")
        print(lines[-1], flush=True)
    if options.write:
        publish("mixed-models.md", "cases", lines)
    if any("off:" in line for line in lines):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
