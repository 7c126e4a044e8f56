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
    both = ", ".join(
        f"{name} {line['stayed']} of {line['runs']} runs of {line['iterations']:,} iterations"
        for name, line in found["gradients"].items()
    )
    variation = found["variation"]
    return [
        "## Two modes at a million points (section 4.1, figure 1)",
        "",
        f"{found['rows']:,} rows of the mixture with tied means, m = {found['m']:,}, "
        f"λ = {found['alpha']:g} τ, T = {number(found['temperature'], 5)}; a flat prior, "
        "without which the modes do not weigh the same. "
        f"{found['runs']} runs of {found['iterations']:,} iterations, "
        f"{100 * found['acceptance']:.1f} % accepted (paper: about 30 %). The variance of an "
        f"estimate is {number(found['variance'])} on average, its distance from normal "
        f"{number(found['off_normal'], 2)}.",
        "",
        f"![density, contours and the ratio of the modes]({PICTURES}/mixture.png)",
        "",
        "Positions within a radius of (1, -1) over those within it of (0, 1), where a run has "
        "both; the truth is 1, by symmetry, also of the chain's own marginal:",
        "",
        *table(head, rows),
        "",
        "A mean of ratios of small counts is above 1 though the counts are equal on average; the "
        f"logarithm has the truth 0. θ2 > 0 in {error(half['mean'], half['error'])} of the "
        f"positions. Total variation over {BINS} × {BINS} bins: from the tempered posterior "
        f"{number(variation['to_tempered'])}, from the marginal that the chain has, the power mean "
        f"of the likelihoods, {number(variation['to_marginal'])}; the positions are worth "
        f"{found['effective']:,.0f} independent draws.",
        "",
        f"SGLD and SGHMC at T = 1, half of the runs from either mode, stay in it: {both}; in the "
        "paper neither ever visits the other mode.",
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
        "Li and Wong 2017, *Mini-batch Tempered MCMC*. **The paper claims** that minibatches at a "
        "high temperature find modes that gradients do not, classify digits with 99 % a hundred "
        "times as fast as MCMC, and that an equi-energy ladder of minibatches weighs fifty modes. "
        "**Found here**: the first holds, and the draws have the density that "
        "[`mint`](../explanation/acceptance-tests.md#mint) predicts; no α gives 99 % here; and of "
        "the fifty modes no correct sampler reproduces the published table.",
        "",
        "`python -m bench.papers.mint WORK --write` wrote this page, its pictures and "
        "`bench/results/papers-mint.json`, which has more.",
        "",
        measured,
        "",
    ]
    return "\n".join([*intro, *sections(results)]).rstrip() + "\n"
