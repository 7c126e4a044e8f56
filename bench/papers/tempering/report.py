"""The tables of van de Meent et al. 2014 beside the published figures, and their page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.papers.markdown import number, table
from bench.papers.tempering import cost, published, text
from bench.papers.tempering.measures import CONVERGED
from bench.papers.tempering.problems import (
    BETA_MIN,
    GAUSSIAN,
    HMC,
    LEVELS,
    METHODS,
    MH,
    NARROW,
    PROCESS,
    WIDE,
    Cell,
)

ALPHA = {GAUSSIAN: 1.0, PROCESS: 3.0}
TITLES = {GAUSSIAN: "Gaussian mean", PROCESS: "Gaussian process"}
NUMBERS = {PROCESS: "Table 1", GAUSSIAN: "Table 2"}
FEWEST = 20
"""Draws of a chain after the first half, without which R-hat says nothing."""
SHOWN = (5, 10)
"""Numbers of parameters in the tables; the results have others."""
Line = dict[str, Any]


def cost_table(model: str, part: Line) -> list[str]:
    """Return what a draw costs relative to HMC: predicted, published, measured."""
    rows, alpha, m = [], ALPHA[model], LEVELS - 1
    last = part["sizes"][-1]
    base = part["times"]["inner"]
    for method in ("spt", "stt", "pt", "tt"):
        mine = part["times"][method]
        cells = [
            cost.relative_cost(method, alpha, BETA_MIN, m, reading)
            for reading in (cost.PRINTED, cost.OURS)
        ]
        cells += [published.RUN_TIME[model][method]]
        cells += [mine["seconds"][-1] / base["seconds"][-1]]
        cells += [mine["rows"][-1] / base["rows"][-1]]
        rows.append([method, *(number(cell) for cell in cells)])
    head = (
        "", "eqs. (15)-(18) as printed", "transitions here", "paper, time",
        f"here, time at N = {last}", "here, rows evaluated",
    )  # fmt: skip
    return table(head, rows)


def good(line: Line) -> bool:
    """Return whether the chains have converged by the paper's rule, and are long enough to say."""
    return line["rhat"] is not None and line["rhat"] < CONVERGED and line["kept"] >= FEWEST


def best(values: list[tuple[float, bool]]) -> int | None:
    """Return the place of the largest value that is not starred."""
    clean = [i for i, (value, starred) in enumerate(values) if not starred and value > 0.0]
    return max(clean, key=lambda i: values[i][0]) if clean else None


def cells_of(values: list[tuple[float, bool]]) -> list[str]:
    """Return values with their ratio to the first, stars, and the best in bold."""
    top, out = best(values), []
    for i, (value, starred) in enumerate(values):
        shown = number(value) + "*" * starred
        shown = f"**{shown}**" if i == top else shown
        out.append(f"{shown} ({number(value / values[0][0], 2)})" if i and values[0][0] else shown)
    return out


Half = tuple[str, float]


def halves(model: str, *, tuned: bool) -> list[Half]:
    """Return inner sampler and root of Sigma of every part of a table."""
    scales = (NARROW, WIDE) if model == GAUSSIAN and not tuned else (NARROW,)
    return [(inner, row_sd) for inner in (HMC, MH) for row_sd in scales]


def name_of(model: str, half: Half) -> str:
    """Return how a part is called."""
    return half[0] + f", Σ = {half[1]:g}² I" * (model == GAUSSIAN)


def sizes_of(
    lines: dict[str, Line], model: str, half: Half, *, tuned: bool
) -> Iterator[tuple[int, int, list[Line]]]:
    """Yield |theta|, N and the lines of the methods, for every |theta| of a part."""
    inner, row_sd = half
    for dim in (5, 10, 15, 20, 25, 50, 100):
        for n in (published.ROWS[model, inner], 128):
            names = [Cell(model, inner, dim, n, method, tuned, row_sd).name for method in METHODS]
            if all(name in lines for name in names):
                yield dim, n, [lines[name] for name in names]
                break


def rates(found: list[Line], key: str = "rate") -> list[tuple[float, bool]]:
    """Return effective draws a second, and whether they are starred."""
    return [(line[key] or 0.0, not good(line)) for line in found]


def rate_table(lines: dict[str, Line], model: str, half: Half, *, tuned: bool) -> list[str]:
    """Return a part of table 1 or 2."""
    rows = []
    for dim, _, found in sizes_of(lines, model, half, tuned=tuned):
        if dim not in SHOWN:
            continue
        paper = published.TABLES[model, half[0]].get(dim)
        if paper and not tuned:
            rows.append([f"{dim}", "paper", *cells_of(list(paper))])
        rows.append([f"{dim}", "here", *cells_of(rates(found))])
    return table(("\\|θ\\|", "", half[0], *METHODS[1:]), rows)


def tables(results: dict[str, Any]) -> list[str]:
    """Return every table of the parts that were measured."""
    lines: list[str] = []
    if found := results.get("time"):
        lines += ["### Run time relative to HMC", "", text.TIME, ""]
        for model, part in found["models"].items():
            lines += [f"{TITLES[model]}, α = {ALPHA[model]:g}:", "", *cost_table(model, part), ""]
    for model in (PROCESS, GAUSSIAN):
        if found := results.get(model):
            lines += [f"### {NUMBERS[model]}: {TITLES[model]}, effective draws a second", ""]
            lines += [text.RATES, ""] * (model == PROCESS)
            for half in halves(model, tuned=False):
                _, n, _ = next(sizes_of(found["cells"], model, half, tuned=False))
                paper = published.ROWS[model, half[0]]
                lines += [f"{name_of(model, half)}, N = {n} (paper: {paper}):", ""]
                lines += [*rate_table(found["cells"], model, half, tuned=False), ""]
    return lines


def page(results: dict[str, Any]) -> str:
    """Return the page."""
    machines = "; ".join(dict.fromkeys(result["machine"] for result in results.values()))
    parts = [text.head(results, machines), "\n".join(tables(results)).strip()]
    parts += ["## The figures", *(words for key, words in text.FIGURES if key in results)]
    parts += ["## Where it differs", differences(results), "## Settings"]
    return "\n\n".join(part.strip() for part in [*parts, text.RECIPE]) + "\n"


def winners(lines: dict[str, Line], model: str, half: Half, *, tuned: bool) -> str:
    """Return in words which method is best for every |theta|, published and here."""
    said, names = [], [half[0], *METHODS[1:]]
    for dim, _, found in sizes_of(lines, model, half, tuned=tuned):
        paper = published.TABLES[model, half[0]].get(dim)
        theirs = best(list(paper)) if paper and not tuned else None
        places = best(rates(found)), best(rates(found, "auto_rate"))
        words = [names[i] if i is not None else "none converged" for i in places]
        here = words[0] if words[0] == words[1] else f"{words[0]} ({words[1]} by autocorrelations)"
        paper_words = f", paper {names[theirs]}" if theirs is not None else ""
        said.append(f"|θ| = {dim}: {here}{paper_words}")
    return "; ".join(said)


def gains(lines: dict[str, Line], model: str, half: Half, *, tuned: bool) -> list[float]:
    """Return the best tempered rate over that of the inner sampler, by autocorrelations.

    For every |theta| where both have converged.
    """
    out = []
    for _, _, found in sizes_of(lines, model, half, tuned=tuned):
        values = [value for value, starred in rates(found, "auto_rate")[1:] if not starred]
        if values and good(found[0]) and found[0]["auto_rate"]:
            out.append(max(values) / found[0]["auto_rate"])
    return out


def exactness(cells: dict[str, Line]) -> str:
    """Return in words how far means of the Gaussian are from the exact ones, where converged."""
    off = [line["rms_z"] for line in cells.values() if line.get("rms_z") and good(line)]
    return (
        "Gaussian mean, against the exact posterior: (mean - exact) / (sd / √ESS), root mean "
        f"square over the parameters, is {number(float(np.median(off)), 2)} in the median of the "
        f"{len(off)} cells that converged, {number(max(off), 2)} at most; 1 is expected."
    )


def differences(results: dict[str, Any]) -> str:
    """Return a line for each difference from the paper."""
    lines: list[str] = []
    if GAUSSIAN in results:
        lines.append(exactness(results[GAUSSIAN]["cells"]))
    said_of = {
        "time": [text.TIMED],
        GAUSSIAN: [text.GAUSSIAN_ORDER],
        PROCESS: [text.PROCESS_ORDER, text.FIXED],
        "tuned": [text.DEFAULTS],
    }
    lines += [line for part, words in said_of.items() if part in results for line in words]
    return "\n".join(f"- {line}" for line in lines)
