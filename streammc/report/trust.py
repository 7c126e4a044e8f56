"""Third part of a report: whether the draws can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc import registry
from streammc.diagnostics.summary import least_ess, least_size
from streammc.diagnostics.text import number
from streammc.diagnostics.weights import Audit, heavy_tailed
from streammc.plots.run_plots import draw_ladder, draw_statistic, draw_weights
from streammc.report.asked import ReportRequest
from streammc.report.figures import SvgFigure, draw_ranks, svg_figure
from streammc.runs.advice import CORRECTION_WARNING, DEFF_WARNING, R_HAT_OF_ONE, R_HAT_WARNING
from streammc.samplers.common.sampler import LEVELS, Check

_RANKED = 4
"""Parameters of the rank figure: those of the largest R-hat."""


def checks(document: Mapping[str, Any]) -> list[Check]:
    """Return the checks of a run: of every sampler, and those of its family."""
    name = document["sampler"]
    family = registry.sampler(name)().checks(document) if name in registry.SAMPLERS else []
    shown = [check for check in family if check.meaning]
    return [*_mixing(document), *shown, *_passes(document), *_audit(document)]


def _mixing(document: Mapping[str, Any]) -> list[Check]:
    parameters, chains = document["parameters"], document["chains"]
    r_hats = {k: v["r_hat"] for k, v in parameters.items() if v["r_hat"] is not None}
    every = {label: least_size(entry) for label, entry in parameters.items()}
    sizes = {label: size for label, size in every.items() if size is not None}
    found = []
    if r_hats:
        worst = max(r_hats, key=lambda label: r_hats[label])
        limit = R_HAT_OF_ONE if chains == 1 else R_HAT_WARNING
        found.append(
            Check(
                name="largest R-hat",
                value=f"{r_hats[worst]:.3f} ({worst})",
                limit=f"at most {limit:g}",
                passed=r_hats[worst] <= limit,
                meaning="Compares the variance between chains with that inside them; 1 where they "
                "agree.",
            )
        )
    if sizes:
        worst = min(sizes, key=lambda label: sizes[label])
        found.append(
            Check(
                name="smallest effective sample size",
                value=f"{sizes[worst]:.0f} ({worst})",
                limit=f"at least {least_ess(chains)}",
                passed=sizes[worst] >= least_ess(chains),
                meaning="How many independent draws the correlated ones are worth, in the bulk, in "
                "the tails, or for standard deviations.",
            )
        )
    return found


def _passes(document: Mapping[str, Any]) -> list[Check]:
    """Return the checks of the passes: certificate, Laplace gap and design effect."""
    sampling, found = document["sampling"], []
    if sampling.get("decrement") is not None:
        found.append(
            Check(
                name="certificate: distance of the centre from the mode",
                value=f"{number(sampling['decrement'], 2)} posterior sd",
                limit="" if sampling.get("theta_star_certified") is None else "set by the passes",
                passed=sampling.get("theta_star_certified"),
                meaning="Control variates are expanded around theta_star; this is the Newton "
                "decrement there, from the last full pass.",
            )
        )
    for line in document.get("notes", ()):
        found.append(
            Check(
                name="prior beside the rows",
                value=line,
                meaning="A prior that was given, and that moves a parameter by over 0.25 posterior "
                "sd with over a tenth of the information on it.",
            )
        )
    gap = sampling.get("laplace_gap")
    if gap:
        found.append(
            Check(
                name="Laplace gap",
                value=f"means within {number(gap['mean'], 2)} sd, sd within a factor "
                f"{number(float(np.exp(gap['log_sd'])), 3)}",
                meaning="How far the draws are from the Gaussian approximation at the mode: small "
                "for many rows, large where the posterior is skewed.",
            )
        )
    if sampling.get("deff") is not None:
        found.append(
            Check(
                name=f"design effect of runs of {sampling['deff_rows']} rows",
                value=number(sampling["deff"], 3),
                limit=f"at most {DEFF_WARNING:g}",
                passed=sampling["deff"] <= DEFF_WARNING,
                meaning="How much more variance neighbouring rows have than random ones: 1 for "
                "shuffled rows.",
            )
        )
    return found


def _audit(document: Mapping[str, Any]) -> list[Check]:
    written = document.get("audit")
    if not written:
        why = document.get("not_audited")
        if not why and document["sampling"].get("target") == "perturbed":
            why = "not made, because it was turned off; 'streammc audit' on the run makes it"
        meaning = "Weighs draws against the exact posterior, in one more pass over all rows."
        return [Check(name="audit", value=why, meaning=meaning)] if why else []
    audit = Audit.from_json(written)
    k = audit.pareto_k
    tail = k is not None and heavy_tailed(k, audit.ess, audit.draws, audit.largest_weight)
    return [
        Check(
            name="audit: largest correction of a mean",
            value=f"{number(audit.largest_correction, 2)} posterior sd ({audit.worst})",
            limit=f"at most {CORRECTION_WARNING:g}",
            passed=audit.largest_correction <= CORRECTION_WARNING,
            meaning="What exact importance weights from the sampled density to the posterior "
            "change; they were computed from all rows.",
        ),
        Check(
            name="audit: tail of the weights",
            value=f"Pareto k {number(k, 2)}; {audit.draws} draws worth {number(audit.ess)}",
            limit="light",
            passed=not tail,
            meaning="With a heavy tail the correction itself cannot be trusted.",
        ),
    ]


def figures(request: ReportRequest, shown: list[Check]) -> list[SvgFigure]:
    """Return the figures of the checks: ranks, statistics over the draws, levels, weights."""
    run, document = request.run, request.document
    found = [_ranks(request)] if document["draws"] >= 4 else []
    stats = run.read_group("sample_stats")
    for place, each in enumerate(shown):
        if each.figure == LEVELS:
            found.append(_levels(f"check{place}", each, document["tempering"]["levels"]))
        elif each.figure in stats:
            values = np.asarray(stats[each.figure], dtype=float)
            found.append(_over_draws(f"check{place}", each, values))
    if document.get("audit"):
        weights = run.read_group("audit")["log_weight"]
        audit = Audit.from_json(document["audit"])
        found.append(
            svg_figure(
                "weights",
                lambda figure: draw_weights(figure.subplots(), weights),
                height=2.6,
                text=f"Histogram of the weights of {audit.draws} audited draws, relative to their "
                f"mean; the largest is {number(audit.largest_weight, 3)}.",
                caption="Weights of the audit. A draw with weight 1 counts as it is.",
            )
        )
    return found


def _levels(name: str, of: Check, levels: Mapping[str, Any]) -> SvgFigure:
    """Return the figure of the levels of a ladder."""

    def draw(figure: Any) -> None:
        draw_ladder(figure.subplots(2, 1, sharex=True), levels)

    return svg_figure(
        name,
        draw,
        height=3.4,
        text=f"Levels of the ladder. {of.name}: {of.value}.",
        caption=f"Temperature levels and rates between them. {of.meaning}",
    )


def _over_draws(name: str, of: Check, values: NDArray[np.float64]) -> SvgFigure:
    """Return the figure of a statistic (chain, draw) over the draws."""

    def draw(figure: Any) -> None:
        draw_statistic(figure.subplots(), values, of.figure, of.line)

    limit = f", limit {of.limit}" if of.limit else ""
    return svg_figure(
        name,
        draw,
        height=2.6,
        text=f"{of.name} over the draws of {len(values)} chains: {of.value}{limit}.",
        caption=f"{of.name[0].upper()}{of.name[1:]}, over the draws. {of.meaning}",
    )


def _ranks(request: ReportRequest) -> SvgFigure:
    """Return the figure of the ranks of the parameters of the largest R-hat."""
    labels = list(request.run.labels)
    r_hat = {k: v["r_hat"] or np.inf for k, v in request.document["parameters"].items()}
    worst = sorted(labels, key=lambda label: -r_hat.get(label, 0.0))[:_RANKED]
    draws = request.run.draws_matrix()

    def draw(figure: Any) -> None:
        rows = -(-len(worst) // 2)
        grid = figure.subplots(rows, min(len(worst), 2), squeeze=False)
        for ax, label in zip(grid.flat, worst, strict=False):
            draw_ranks(ax, draws[:, :, labels.index(label)], label)
        for ax in grid.flat[len(worst) :]:
            ax.set_visible(False)

    shown = ", ".join(f"{label} (R-hat {number(r_hat[label], 4)})" for label in worst)
    return svg_figure(
        "ranks",
        draw,
        height=1.9 * -(-len(worst) // 2),
        text=f"Rank plots by chain of {shown}.",
        caption="Ranks of the draws of each chain among those of all, for the parameters of the "
        "largest R-hat. Chains that agree have flat lines, in the grey band in 99 % of the bins.",
    )
