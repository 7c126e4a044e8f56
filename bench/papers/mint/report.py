"""The figures of Li and Wong 2017 beside the published ones, and their page."""

from __future__ import annotations

from typing import Any

from bench.papers.markdown import number, table
from bench.papers.mint import mintee
from bench.papers.mint.digits_text import digits
from bench.papers.mint.mixture import BINS

PUBLISHED = "Li and Wong 2017, Mini-batch Tempered MCMC"
PICTURES = "mint"


def error(mean: float, spread: float) -> str:
    """Return ``mean ± standard error``."""
    return f"{number(mean, 4)} ± {number(spread, 2)}"


def mixture(found: dict[str, Any]) -> list[str]:
    """Return the section on figure 1."""
    rows = []
    for radius, line in found["ratio"].items():
        printed = "1, within an error bar" if radius == "0.01" else "–"
        cells = [error(line["mean"], line["error"]), printed, number(line["pooled"], 4)]
        rows.append([radius, *cells, error(line["log"], line["log_error"]), str(line["runs"])])
    head = ("radius", "ratio, mean over runs", "paper", "of all runs", "its logarithm", "runs")
    half = found["halves"]
    curve = found["curve"]
    steps = [
        [f"{int(i):,}", error(mean, spread)]
        for i, mean, spread in zip(curve["at"], curve["mean"], curve["error"], strict=True)
        if mean is not None and mean == mean
    ][::2]
    both = [
        [
            name, f"{line['runs']}", f"{line['iterations']:,}", number(line["gradients"]),
            f"{number(line['first'])} to {number(line['last'])}", number(line["sd"]),
            f"{line['both']} of {line['runs']}", f"{line['stayed']} of {line['runs']}",
        ]
        for name, line in found["gradients"].items()
    ]  # fmt: skip
    variation = found["variation"]
    return [
        "## Two modes at a million points (section 4.1, figure 1)",
        "",
        f"{found['rows']:,} rows of the mixture with tied means, m = {found['m']:,}, "
        f"λ = {found['alpha']:g} τ, so T = {number(found['temperature'], 5)}; a flat prior, "
        "without which the modes do not weigh the same. "
        f"{found['runs']} runs of {found['iterations']:,} iterations from θ = 0, steps of "
        f"{number(found['step'])}, {100 * found['acceptance']:.1f} % accepted (paper: about "
        f"30 %); {found['seconds']:.0f} s a run on one thread of a machine shared with other work. "
        f"The variance of an estimate is {number(found['variance'])} on average, its distance from "
        f"normal {number(found['off_normal'], 2)}.",
        "",
        f"![density, contours and the ratio of the modes]({PICTURES}/mixture.png)",
        "",
        "Positions within a radius of (1, -1) over those within it of (0, 1), where a run has "
        "both; the truth is 1, by symmetry, also of the chain's own marginal:",
        "",
        *table(head, rows),
        "",
        "A mean of ratios of small counts is above 1 though the counts are equal on average: "
        "within 0.01, the paper's radius, few positions ever are. The logarithm has the truth 0.",
        "",
        f"Half of the positions must have θ2 > 0: {error(half['mean'], half['error'])}. A run "
        f"crosses θ2 = 0 in {100 * half['crossings']:.1f} % of its iterations.",
        "",
        "The ratio within 0.01 by iteration, mean and standard error over the runs that have one "
        "(the right panel):",
        "",
        *table(("iterations", "ratio"), steps),
        "",
        f"Total variation over {BINS} × {BINS} bins, of all positions: from the tempered posterior "
        f"by quadrature {number(variation['to_tempered'])}, from the marginal that the chain has, "
        f"the power mean of the likelihoods, {number(variation['to_marginal'])}; between these two "
        f"{number(variation['between'])}. The positions are worth {found['effective']:,.0f} "
        "independent draws.",
        "",
        "SGLD and SGHMC at T = 1 with steps that decrease as t^-0.55, half of the runs from either "
        "mode; 'steps' in posterior standard deviations, 'sd' of θ2 in the second half:",
        "",
        *table(
            ("", "runs", "iterations", "gradients each", "steps", "sd", "see both modes", "stay"),
            both,
        ),
        "",
        "In the paper neither ever visits the other mode. Fewer iterations here than its 10⁶: "
        "steps decrease, and the modes are hundreds of standard deviations apart.",
        "",
    ]


def sections(results: dict[str, Any]) -> list[str]:
    """Return the sections of the parts that were measured."""
    lines: list[str] = []
    if found := results.get("mixture"):
        lines += mixture(found)
    if found := results.get("digits"):
        lines += digits(found)
    if found := results.get("mintee"):
        lines += mintee.section(found)
    return lines


def page(results: dict[str, Any]) -> str:
    """Return the page."""
    measured = " ".join(
        f"{part}: {found['machine']}." for part, found in results.items() if "machine" in found
    )
    intro = [
        "# MINT and MINTEE: the paper's figures",
        "",
        "Li and Wong 2017, *Mini-batch Tempered MCMC*, beside what "
        "[`mint`](../explanation/mint.md) gives. `python -m bench.papers.mint WORK --write` wrote "
        "this page, its pictures and `bench/results/papers-mint.json`. It is long so that a search "
        "finds any figure.",
        "",
        measured,
        "",
    ]
    return "\n".join([*intro, *sections(results)]).rstrip() + "\n"
