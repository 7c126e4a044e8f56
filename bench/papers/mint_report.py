"""The figures of Li and Wong 2017 beside the published ones, and their page."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from markdown import number, table
from mint_digits import BATCHES, COLD, DIMENSION, LEVELS, MINT, PLAIN, TEMPERED
from mint_mixture import BINS

PUBLISHED = "Li and Wong 2017, Mini-batch Tempered MCMC"
STEPS = {MINT: 1.71, TEMPERED: 1.50, PLAIN: 0.05}
"""Mean length of the accepted steps, section 4.2."""
PICTURES = "mint"


def third_part() -> ModuleType | None:
    """Return the module of MINTEE, where there is one: ``measure`` and ``section``."""
    return import_module("mintee") if find_spec("mintee") else None


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


def digits(found: dict[str, Any]) -> list[str]:
    """Return the section on figures 2 and 4."""
    rows = []
    for name, line in found["methods"].items():
        rows.append([
            name, f"{line['runs']} × {line['draws']:,}", number(line["step"]),
            number(line["acceptance"]), number(line["move"]), number(STEPS.get(name)),
            number(line["rows"]), number(line["milliseconds"]), f"{line['accuracy']:.4f}",
            f"{line['best']:.4f}", f"{line['of_mean']:.4f}",
            f"{line['of_all']:.4f}",
        ])  # fmt: skip
    head = (
        "", "runs × draws", "step, each coordinate", "accepted", "mean accepted step", "paper",
        "rows an iteration", "ms an iteration", "accuracy, last fifth", "best draw",
        "mean of the last half", "the same, of all runs",
    )  # fmt: skip
    base = found["methods"][MINT]["reached"]
    speed = []
    for level in LEVELS:
        cells = []
        for name in (MINT, TEMPERED, PLAIN):
            at = found["methods"][name]["reached"][str(level)]
            cells += [number(at[0]) if at else "–", number(at[1]) if at else "–"]
            if name != MINT:
                mine = base[str(level)]
                both = f"{at[0] / mine[0]:.0f}, {at[1] / mine[1]:.1f}" if at and mine else "–"
                cells.append(both)
        speed.append([f"{level}", *cells])
    columns = ["accuracy", "mint: rows", "seconds"]
    for name in (TEMPERED, PLAIN):
        columns += [f"{name}: rows", "seconds", "times those of mint"]
    normal = found["normality"]
    return [
        "## Logistic regression, MNIST 1 against 7 (section 4.2, figures 2 and 4)",
        "",
        f"{found['rows']:,} images, m = {found['m']}, a flat prior; all start at θ = 0. The paper "
        f"does not print α here. With α = {found['alpha']:g}, T = "
        f"{number(found['temperature'], 4)}, the accepted steps of mint are like those printed; "
        f"the colder target has T = {number(found['colder_temperature'])}. Steps are tuned to an "
        "acceptance of about 0.30 over 900 iterations of mint and 90 on all rows, on the way up "
        "from θ = 0; the table has what is accepted from then on. That of the "
        "colder run is given: its estimates are too noisy for 0.30. Its v is "
        f"{number(found['methods'][COLD]['variance'])}, that of the first "
        f"{number(found['methods'][MINT]['variance'])}.",
        "",
        f"![normality, accuracy by passes and by seconds]({PICTURES}/digits.png)",
        "",
        *table(head, rows),
        "",
        "Rows and seconds (one thread, a machine shared with other work) until a draw first has an "
        "accuracy, medians over the runs; "
        "'times': how many times as many as `mint`, rows and seconds (paper: a 100-fold speed-up "
        "in seconds over MCMC):",
        "",
        *table(columns, speed),
        "",
        "The paper reports an accuracy above 99 % for all of them, and does not say of what. At "
        "temperature T a normal posterior leaves d T / (2 n) nats a row of its "
        "likelihood to noise, "
        f"{number(DIMENSION * found['temperature'] / (2 * found['rows']))} here with {DIMENSION} "
        "coefficients, so that single draws cannot classify well, whoever draws them; means over "
        "draws and runs do better. With m of n rows T cannot be below n / m = "
        f"{found['rows'] / found['m']:.0f}. What is reached is in the table.",
        "",
        f"**Is t normal?** {BATCHES:,} minibatches at the mean of the last positions of a run: "
        f"the standard deviation of t is {number(normal['sd'])} (of the rows: "
        f"{number(normal['sd_rows'])}), its skewness {number(normal['skew'])}, and its "
        f"distribution function is at most {number(normal['distance'])} from normal. The "
        "rows have skewness "
        f"{number(normal['skew_rows'])}, for which the first Edgeworth term is "
        f"{number(normal['predicted'])}.",
        "",
    ]


def sections(results: dict[str, Any]) -> list[str]:
    """Return the sections of the parts that were measured."""
    lines: list[str] = []
    if found := results.get("mixture"):
        lines += mixture(found)
    if found := results.get("digits"):
        lines += digits(found)
    if (found := results.get("mintee")) and (module := third_part()):
        lines += module.section(found)
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
        "[`mint`](../explanation/mint.md) gives. `python bench/papers/mint.py WORK --write` wrote "
        "this page, its pictures and `bench/results/papers-mint.json`.",
        "",
        measured,
        "",
    ]
    return "\n".join([*intro, *sections(results)]).rstrip() + "\n"
