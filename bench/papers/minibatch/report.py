"""The tables of Seita et al. 2017 beside the published figures, and their page."""

from __future__ import annotations

from typing import Any

from bench.papers.markdown import number, table
from bench.papers.minibatch import mixture, published, text
from bench.papers.minibatch.published import AUSTERE_C, AUSTERE_NC, METHODS, MINIBATCH, SUBLHD

SIZE_HEAD = (
    "",
    "mean rows of a decision",
    "paper",
    "ratio",
    "rows evaluated",
    "accepted",
    "trials × draws",
)


ORDER = (MINIBATCH, mixture.BOUND_ON, AUSTERE_NC, AUSTERE_C, mixture.AUSTERE_WORST, SUBLHD)


def ordered(methods: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return methods in the order of the paper, the rest after them."""
    rest = [name for name in methods if name not in ORDER]
    return [(name, methods[name]) for name in (*ORDER, *rest) if name in methods]


def pair(mean: Any, spread: Any) -> str:
    """Return ``mean ± standard deviation``."""
    return number(mean, 4) + ("" if spread is None else f" ± {number(spread, 2)}")


def size_row(name: str, line: dict[str, Any], paper: published.Pair | None) -> list[str]:
    """Return a row of a table of sizes."""
    return [
        name,
        pair(line["size"], line["size_sd"]),
        f"{paper[0]:,.1f} ± {paper[1]:,.1f}" if paper else "–",
        f"{line['size'] / paper[0]:.2f}" if paper else "–",
        f"{line['rows']:,.0f}",
        f"{line['acceptance']:.3f}",
        f"{line['trials']} × {line['draws']:,}",
    ]


def table_1(found: dict[str, Any]) -> list[str]:
    """Return table 1, with steps of standard deviation 0.15."""
    rows = [
        size_row(name, line, published.TABLE_1.get(name))
        for name, line in ordered(found["readings"]["standard deviation 0.15"])
        if "size" in line and name not in (mixture.BARKER, mixture.METROPOLIS)
    ]
    return [*table(SIZE_HEAD, rows), ""]


def table_2(title: str, found: dict[str, Any]) -> list[str]:
    """Return a column of table 2."""
    paper = published.TABLE_2[title]
    rows = []
    for name, line in ordered(found["methods"]):
        row = size_row(name, line, paper.get(name))
        rows.append([*row, f"{line['accuracy']:.4f}"])
    head = (*SIZE_HEAD, "accuracy, last 1000")
    return table(head, rows)


def table_4(found: dict[str, Any]) -> list[str]:
    """Return eq. (40), chi-squared and total variation."""
    methods = found["readings"]["standard deviation 0.15"]
    eq, chi = published.TABLE_4["eq. (40)"], published.TABLE_4["chi-squared"]
    rows = []
    for name, line in ordered(methods):
        cells = [pair(line["eq_40"], line["eq_40_sd"])]
        cells += [pair(*eq[name]) if name in eq else "–"]
        cells += [pair(line["chi_squared"], line["chi_squared_sd"])]
        cells += [pair(*chi[name]) if name in chi else "–"]
        rows.append([name, *cells, f"{line.get('draws', mixture.DRAWS):,}"])
    head = ("", "eq. (40)", "paper", "χ²", "paper", "draws of a trial")
    return table(head, rows)


def variation_table(found: dict[str, Any]) -> list[str]:
    """Return total variation from the posterior, that of exact chains, and the bound."""
    rows = []
    for name, line in ordered(found["readings"]["standard deviation 0.15"]):
        if "level" not in line:
            continue
        cells = [number(line["effective"]), number(line["variation"])]
        cells += [pair(line["level"], line["level_sd"]), number(line["error"], 2)]
        allowed = None if line["error"] is None else line["amplification"] * line["error"]
        rows.append([name, *cells, number(allowed, 2)])
    head = (
        "", "effective draws", "total variation", "of exact chains of that length",
        "mean error of a decision", "variation that such errors allow",
    )  # fmt: skip
    return table(head, rows)


def long_lines(found: dict[str, Any]) -> str:
    """Say how near long runs come."""
    mine, exact = found[MINIBATCH], found[mixture.BARKER]
    return (
        f"Longer: {mine['draws']:,} draws of `mh-minibatch` {mine['variation']:.4f}, "
        f"{exact['draws']:,} of all rows {exact['variation']:.4f}."
    )


def figure_6(found: dict[str, Any]) -> list[str]:
    """Return mean sizes by step size."""
    rows = []
    for step, paper in published.FIGURE_6.items():
        line = found[str(step)]
        rows.append([f"{step}", pair(line["size"], line["size_sd"]), number(paper, 5)])
        rows[-1] += [f"{line['size'] / paper:.2f}" if paper else "–", f"{line['largest']:,.0f}"]
    return table(("step", "mean rows of a decision", "paper", "ratio", "largest"), rows)


def tables(results: dict[str, Any]) -> list[str]:
    """Return every table of the parts that were measured."""
    lines: list[str] = []
    if found := results.get("mixture"):
        lines += ["### Table 1: minibatches of the mixture", "", *table_1(found)]
        lines += ["### Table 4: eq. (40) and chi-squared", "", text.GRID, "", *table_4(found), ""]
        lines += ["### Total variation from the posterior", "", text.VARIATION, ""]
        lines += [*variation_table(found), "", long_lines(found["long"]), ""]
    for part in ("mnist-13k", "mnist-100k"):
        if found := results.get(part):
            title = part.upper().replace("K", "k")
            lines += [f"### Table 2: {title}", "", *table_2(title, found), ""]
    if found := results.get("steps"):
        lines += ["### Figure 6: step sizes", "", *figure_6(found), ""]
    return lines


def misses(results: dict[str, Any]) -> list[str]:
    """Return the mean sizes that are off by more than promised: 25 %, for mh-sublhd a factor 2."""
    found = []
    groups = []
    if "mixture" in results:
        readings = results["mixture"]["readings"]["standard deviation 0.15"]
        groups.append(("mixture", readings, published.TABLE_1))
    for part in ("mnist-13k", "mnist-100k"):
        if part in results:
            title = part.upper().replace("K", "k")
            groups.append((title, results[part]["methods"], published.TABLE_2[title]))
    for title, lines, paper in groups:
        for name in (one for one in METHODS if one in paper):
            ratio = lines[name]["size"] / paper[name][0]
            most = 2.0 if name == SUBLHD else 1.25
            if ratio > most or ratio < (0.5 if name == SUBLHD else 0.75):
                found.append(f"{title}, {name}: {ratio:.2f} times the paper's mean size")
    return found


def page(results: dict[str, Any]) -> str:
    """Return the page."""
    machines = "; ".join(dict.fromkeys(result["machine"] for result in results.values()))
    parts = [text.HEAD.format(machine=machines), "\n".join(tables(results)).strip()]
    parts += ["## The figures", *(words for key, words in text.FIGURES if key in results)]
    parts += ["## Where it differs", text.differences(results), "## Settings"]
    return "\n\n".join(part.strip() for part in [*parts, text.RECIPE]) + "\n"


__all__ = ["misses", "page", "tables"]
