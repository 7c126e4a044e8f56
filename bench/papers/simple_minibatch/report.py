"""The figures of Chen et al. 2016 as tables beside what the paper prints, and their page."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.papers.markdown import number, table
from bench.papers.simple_minibatch import published, text


def mixture_table(found: dict[str, Any]) -> list[str]:
    """Return what the methods took and how near they came."""
    rows = []
    for name, line in found["methods"].items():
        cells = [number(line["size"], 4), number(line["rows"], 5), f"{line['acceptance']:.3f}"]
        cells += [number(line["effective"]), number(line["variation"])]
        exact = "level" not in line
        chance = "–" if exact else f"{number(line['level'])} ± {number(line['level_sd'], 2)}"
        cells += [chance, number(line["eq_40"], 4), f"{line['trials']} × {line['draws']:,}"]
        rows.append([name, *cells])
    head = (
        "", "rows of a decision", "rows evaluated", "accepted", "effective draws",
        "total variation",
        "of exact chains of that length", "eq. (40)", "trials × draws",
    )  # fmt: skip
    return table(head, rows)


def violation_table(found: dict[str, Any]) -> list[str]:
    """Return violations by minibatch size."""
    rows = []
    for average, counts in found["violations"].items():
        values = np.array(counts)
        cells = [f"{mean:,.0f}" for mean in values.mean(axis=0)]
        rows.append([f"{average}, {len(values)} trial" + ("s" if len(values) > 1 else ""), *cells])
    sizes = published.VIOLATION_SIZES
    rows.append(["paper", *(f"{published.VIOLATIONS}" if m == 200 else "–" for m in sizes)])
    return table(("std(Δ') ≥ 1.2 in 10,000 decisions", *(f"m = {m}" for m in sizes)), rows)


def digits_table(found: dict[str, Any]) -> list[str]:
    """Return what the methods took and what they reached."""
    rows = []
    for name, line in found["methods"].items():
        cells = [number(line["size"], 4), number(line["rows"], 5), f"{line['acceptance']:.3f}"]
        cells += [f"{line['forced']:.4f}", f"{line['accuracy']:.4f}", number(line["likelihood"])]
        rows.append([name, *cells, f"{line['trials']} × {line['draws']:,}"])
    head = (
        "", "rows of a decision", "rows evaluated", "accepted", "forced", "accuracy",
        "log-likelihood", "trials × draws",
    )  # fmt: skip
    return table(head, rows)


def tables(results: dict[str, Any]) -> list[str]:
    """Return every table of the parts that were measured."""
    lines: list[str] = []
    if found := results.get("mixture"):
        lines += ["### The mixture", "", text.MIXTURE, "", *mixture_table(found), ""]
        lines += [*violation_table(found), ""]
    if found := results.get("digits"):
        lines += ["### Logistic regression", "", text.DIGITS, "", *digits_table(found), ""]
    if found := results.get("network"):
        rows = [line for line in found["lines"] if line.startswith("|")]
        lines += ["### The network", "", text.NETWORK, "", *rows, ""]
    return lines


def page(results: dict[str, Any]) -> str:
    """Return the page."""
    machines = "; ".join(dict.fromkeys(result["machine"] for result in results.values()))
    parts = [text.HEAD.format(machine=machines), "\n".join(tables(results)).strip()]
    parts += ["## The figures", *(words for key, words in text.FIGURES if key in results)]
    parts += ["## Where it differs", text.differences(results), "## Settings"]
    return "\n\n".join(part.strip() for part in [*parts, text.RECIPE]) + "\n"
