"""The tables of the reproduction beside the published figures, and its page."""

from __future__ import annotations

from typing import Any

from bench.papers.hmc_ecs import accounting as acc
from bench.papers.hmc_ecs import orders, published
from bench.papers.hmc_ecs.text import (
    AGREEMENT,
    FIGURES,
    HEAD,
    REAL,
    RECIPE,
    SIMULATED,
    differences,
)
from bench.papers.markdown import number, table

NAMES = {"higgs": "HIGGS", "bankruptcy": "Bankruptcy"}


def cost_table(part: str, result: dict[str, Any]) -> list[str]:
    """Return table 1 or 3: RCT against perturbed HMC-ECS, as min, median and max."""
    rows = []
    for name, found in result["costs"].items():
        if name == "HMC over" or name.endswith("no control variates"):
            continue
        counted = found.get("counted") if name != acc.FULL else None
        ways = (published.RCT[part].get(name), counted, found["measured"])
        rows.append([name, *(", ".join(map(number, each)) if each else "–" for each in ways)])
    return table(("RCT: min, median, max", "paper", "counted as the paper", "measured"), rows)


def efficiency_table(part: str, result: dict[str, Any]) -> list[str]:
    """Return table 2 or 4."""
    known = (acc.PERTURBED, acc.SIGNED, acc.FULL, *acc.OURS)
    methods = [name for name in known if name in result["efficiencies"]]
    quantities = {
        "alpha_theta": "α_θ", "alpha_u": "α_u", "IF": "IF", "percent": "100 m / n",
        "variance": "V[l^], mean",
    }  # fmt: skip
    columns = []
    for name in methods:
        paper = published.EFFICIENCIES[part].get(name)
        columns.append((name, result["efficiencies"][name], paper))
    head = [""]
    for name, _, paper in columns:
        head += [name, "paper"] if paper else [name]
    rows = []
    for key, label in quantities.items():
        row = [label]
        for name, mine, paper in columns:
            empty = name == acc.FULL and key in ("alpha_u", "percent", "variance")
            row.append("–" if empty else number(mine[key], 4))
            if paper:
                row.append(number(paper.get(key), 4))
        rows.append(row)
    return table(head, rows)


def ratio_table(part: str, result: dict[str, Any]) -> list[str]:
    """Return how many times as expensive full-data HMC is."""
    efficiency, sizes = published.EFFICIENCIES[part], published.SIZES[part]
    rows = []
    for name, found in result["costs"]["HMC over"].items():
        paper = published.OVER_HMC[part].get(name)
        implied = None
        if paper:
            inner = {"rows": sizes[name], "if": efficiency[name]["IF"], "first": sizes["first"]}
            implied = acc.implied_passes(paper, inner, efficiency["HMC"]["IF"], sizes["n"])
        cells = [paper, implied, found.get("counted"), found["measured"]]
        rows.append([name, *(number(cell) for cell in cells)])
    head = ("HMC over", "paper", "passes it implies", "counted as the paper, 30 passes", "measured")
    return table(head, rows)


def agreement_table(result: dict[str, Any]) -> list[str]:
    """Return how far means and variances are from full-data HMC."""
    keys = ("shift", "lowest", "median", "highest")
    rows = [[name, *(number(a[key], 2) for key in keys)] for name, a in result["agreement"].items()]
    head = ("", "largest mean difference, sd", "variance ratio, min", "median", "max")
    return table(head, rows)


def prediction_lines(result: dict[str, Any]) -> list[str]:
    """Say how far predictions are from those of full-data HMC."""
    lines = []
    for name, r in result.get("roc", {}).items():
        lines.append(
            f"- Area under the ROC curve, {name}: {r['auc']:.5f} ({r['auc_low']:.5f} to "
            f"{r['auc_high']:.5f}); largest distance from the curve of HMC "
            f"{number(r['distance'], 2)}."
        )
    if p := result.get("predicted"):
        lines.append(
            "- Predicted failures by earnings: HMC-ECS and HMC differ by at most "
            f"{100 * p['difference']:.3f} points; the 90 % bands are {100 * p['band']:.3f} points "
            "wide (median)."
        )
    return lines


def tables(results: dict[str, Any]) -> list[str]:
    """Return every table of the parts that were measured."""
    lines: list[str] = []
    for part, (first, second) in {"higgs": (1, 2), "bankruptcy": (3, 4)}.items():
        if part not in results:
            continue
        result, name = results[part], NAMES[part]
        lines += [f"### Table {first}: {name}, relative computational time", ""]
        lines += [*cost_table(part, result), ""]
        lines += [f"### Table {second}: {name}, settings and efficiencies", ""]
        lines += [*efficiency_table(part, result), ""]
        lines += [f"### {name}: the cost of full-data HMC", "", *ratio_table(part, result), ""]
        lines += [f"### {name}: means and variances against full-data HMC", ""]
        lines += [AGREEMENT, "", *agreement_table(result), ""]
        lines += [f"### {name}: predictions", "", *prediction_lines(result), ""]
    if "orders" in results:
        lines += ["### Figures 8 and 9: orders of the control variates", ""]
        lines += [*orders.lines(results["orders"]["orders"]), ""]
    return lines


def page(results: dict[str, Any]) -> str:
    """Return the page."""
    machines = "; ".join(dict.fromkeys(result["machine"] for result in results.values()))
    file = results.get("higgs", {}).get("file")
    parts = [HEAD.format(machine=machines, higgs=REAL.format(file=file) if file else SIMULATED)]
    parts += ["\n".join(tables(results)).strip()]
    parts += ["## The figures", *(text for key, text in FIGURES if key in results)]
    parts += ["## Where it differs", differences(results), "## Settings", RECIPE]
    return "\n\n".join(part.strip() for part in parts) + "\n"
