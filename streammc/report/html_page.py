"""The page of a report: the answer, data and model, whether to trust it, how it was made."""

from __future__ import annotations

import io
import math
import os
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, rankdata

from streammc import registry
from streammc.diagnostics.summary import least_ess, least_size
from streammc.diagnostics.text import (
    AGAINST,
    BAND,
    between,
    cell_text,
    compared_text,
    factor_text,
    formula_text,
    interval_heading,
    interval_names,
    missing_text,
    number,
    ratio_rows,
    reference_texts,
)
from streammc.diagnostics.weights import Audit, heavy_tailed
from streammc.errors import AccessError, IdentityError, OutputError
from streammc.models.table_scale import COEFFICIENT, INTERCEPT, blocks_from_description
from streammc.plots.axes import ACCENT, CHAINS, GRID, INK, LIMIT, MUTED, plain, require_packages
from streammc.plots.prediction_plots import (
    draw_bands,
    plot_by_covariate,
    plot_roc,
    what_is_predicted,
)
from streammc.plots.run_plots import draw_ladder, draw_statistic, draw_weights
from streammc.runs.record import recorded_versions
from streammc.runs.run_summary import CORRECTION_WARNING, DEFF_WARNING, R_HAT_OF_ONE, R_HAT_WARNING
from streammc.samplers.common.sampler import LEVELS, TARGETS, Check
from streammc.shown import value_text
from streammc.trace import facts
from streammc.unfinished import refuse_reserved_name, replace_file
from streammc.verdict import verdict

if TYPE_CHECKING:
    import xarray as xr

    from streammc.trace.run_directory import RunDirectory


PAGE: Final = "#ffffff"
_VARIABLES: Final = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    **{color: f"--chain-{place}" for place, color in enumerate(CHAINS)},
    LIMIT: "--bad",
    "#000000": "--ink",
    PAGE: "--page",
}
"""Colours of the plots -> variables of the style sheet, which has them for light and dark."""
_FONTS: Final = "'DejaVu Sans', Verdana, sans-serif"
_STYLE: Final = {
    "svg.fonttype": "none",  # text stays text: sharp, and in the colours of the page
    "text.parse_math": False,  # a dollar in a column name is a dollar
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.0,
    "axes.facecolor": "none",
    "axes.unicode_minus": False,
}


@dataclass(frozen=True)
class SvgFigure:
    """A figure of the page: its SVG, and the caption below it."""

    svg: str
    caption: str


def svg_figure(
    name: str,
    draw: Callable[[Any], None],
    *,
    height: float,
    text: str,
    caption: str,
    width: float = 5.2,
) -> SvgFigure:
    """Return what ``draw(figure)`` draws as SVG.

    ``name`` is the prefix of the ids in the figure, unique in the page, ``text`` the alternative
    for readers who do not see the figure. Inches; at 5.2 by 72 points an inch a figure fits a
    telephone at half its size.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    with rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # The browser has glyphs for names that the fonts here lack.
        warnings.simplefilter("ignore")
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        figure.savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    return SvgFigure(_inline(buffer.getvalue(), name, text), caption)


def _inline(document: str, name: str, text: str) -> str:
    """Return the ``svg`` element of a document for use inside a page."""
    body = document[document.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.S)
    head, _, rest = body.partition(">")
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None
    rest = re.sub(r"<style[^>]*>.*?</style>", "", rest, flags=re.S)
    # Inside tags only: the texts between them come from the data.
    rest = re.sub(r"<[^<>]+>", lambda tag: _own(tag[0], name), rest)
    return (
        f'<svg {box[0]} role="img" aria-labelledby="{name}-text" fill="var(--ink)" '
        f'stroke-linejoin="round" stroke-linecap="butt"><title id="{name}-text">'
        f"{escape(text)}</title>{rest.strip()}"
    )


def _own(tag: str, name: str) -> str:
    """Return a tag with the ids, colours and fonts of the page."""
    tag = re.sub(r'(\sid=")', rf"\g<1>{name}-", tag)
    tag = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", tag).replace("xlink:href", "href")
    tag = tag.replace("'DejaVu Sans'", _FONTS)
    for color, variable in _VARIABLES.items():
        tag = re.sub(re.escape(color), f"var({variable})", tag, flags=re.I)
    return tag


_BINS: Final = 20
_LONGEST: Final = 28
"""Characters of a label in a figure; longer ones are cut in the middle."""


def draw_intervals(
    ax: Any,
    statistics: Mapping[str, Mapping[str, float | None]],
    labels: Sequence[str],
    ends: tuple[str, str],
) -> Any:
    """Draw median and interval of parameters, with the names of its ends, from the top down."""
    plain(ax)
    ax.grid(False, axis="y")
    for place, label in enumerate(labels):
        entry = statistics[label]
        low, median, high = (entry[name] for name in (ends[0], "median", ends[1]))
        if low is None or median is None or high is None:
            continue
        ax.plot([low, high], [place, place], color=ACCENT, linewidth=2.0, solid_capstyle="butt")
        ax.plot([median], [place], color=ACCENT, marker="o", markersize=4)
    ax.axvline(0.0, color=MUTED, linewidth=0.8)
    ax.set_yticks(range(len(labels)), [shortened(label) for label in labels])
    ax.set_ylim(len(labels) - 0.4, -0.6)
    return ax


def draw_ranks(ax: Any, draws: NDArray[np.float64], title: str) -> Any:
    """Draw how the draws (chain, draw) of each chain rank among all.

    Chains that agree have flat lines: ranks of independent draws lie in the grey band in 99 % of
    the bins (Vehtari et al. 2021, section 4.2). A single chain is cut into halves, as for R-hat.
    """
    plain(ax)
    ax.grid(False)
    if len(draws) == 1:
        half = draws.shape[1] // 2
        draws = np.stack([draws[0, :half], draws[0, -half:]])
    chains, n = draws.shape
    bins = min(_BINS, max(n // 5, 2))
    ranks = (rankdata(draws).reshape(chains, n) - 0.5) / draws.size
    low, high = (binom.ppf(share, n, 1.0 / bins) for share in (0.005, 0.995))
    ax.fill_between([0.0, 1.0], low, high, color=GRID, linewidth=0)
    for chain, row in enumerate(ranks):
        counts, edges = np.histogram(row, bins=bins, range=(0.0, 1.0))
        color = CHAINS[chain % len(CHAINS)]
        ax.stairs(counts, edges, baseline=None, color=color, linewidth=1.0)
    ax.set_ylim(0.0, None)
    ax.set_yticks([])
    ax.set_title(shortened(title), fontsize="small", color=INK)
    return ax


def shortened(label: str) -> str:
    """Return a label of at most 28 characters, cut in the middle."""
    half = (_LONGEST - 3) // 2
    return label if len(label) <= _LONGEST else f"{label[:half]}...{label[-half:]}"


@dataclass(frozen=True, kw_only=True)
class ReportRequest:
    """Run, documents and predictions of a report."""

    run: RunDirectory
    """The opened run."""
    document: Mapping[str, Any]
    """As ``diagnose --json`` prints it."""
    store: Mapping[str, Any] | None
    """As ``info STORE --json`` prints it; ``None`` if the store is not there."""
    model: str
    """Model in words, as ``info RUN`` prints it."""
    commands: Sequence[str]
    """Command lines that make the run and its outputs again."""
    versions: Mapping[str, str]
    """Package -> version of those that wrote the page."""
    predictions: Mapping[str, xr.Dataset]
    """Path -> opened predictions of the run."""
    interval: float
    """Probability of the intervals; the statistics of ``document`` have their ends."""
    comparisons: Sequence[Mapping[str, Any]]
    """Average comparisons of the variables, as ``comparisons --json`` prints them."""
    not_compared: str
    """Which are left out, and why; empty if none is."""
    only_together: Collection[str]
    """Columns that never change alone, where the store is known."""


_MEGABYTE: Final = 1e6


def _texts(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return facts as text by name; those that are empty are left out."""
    return {name: value_text(value) for name, value in facts.items() if value not in (None, "")}


def data_facts(request: ReportRequest) -> dict[str, str]:
    """Return the facts about the data of a run: name -> text."""
    address, store = request.document.get("store"), request.store
    if store is None:
        if address == "memory":
            return {"note": "the rows were in memory, and no store was kept to describe them"}
        return {
            "store": str(address),
            "note": "the store is not at its place any more, or has grown since: this page cannot "
            "describe it",
        }
    groups = store.get("groups")
    response = store.get("response")
    compared = request.document.get("references") or {}
    levels = dict.fromkeys(each for several in compared.values() for each in several)
    facts: dict[str, Any] = {
        "store": store["path"],
        "rows": store["n_rows"],
        "response": response or "none",
        "columns of the design": list(store["features"]),
        "reference levels": ", ".join(levels) or None,
        "groups": groups and f"{groups['n_groups']:,} of {groups['column']}",
        "factors that cross": ", ".join(
            f"{each['levels']:,} of {each['column']}" for each in store.get("crossed") or ()
        ),
        "made from": _sources(store),
        "size": f"{store['bytes'] / _MEGABYTE:,.4g} MB, {store['row_bytes']} bytes a row",
        "columns are standardised": store.get("standardization") is not None,
    }
    return _texts(facts)


def _sources(store: Mapping[str, Any]) -> str | None:
    """Return the files or the simulation that a store was made from."""
    if store.get("simulation"):
        return f"a simulation: {store['simulation']['kind']}, seed {store['simulation']['seed']}"
    sources = [str(source) for source in store.get("sources") or ()]
    return value_text(sources) if sources else None


def lead(request: ReportRequest) -> str:
    """Return what the answer is about, in one sentence."""
    store = request.store
    if store is None:
        return f"Model: {request.model}."
    what = f"What changes {store['response']}" if store.get("response") else "What came out"
    return f"{what}: model {request.model}, fitted to {store['n_rows']:,} rows."


def model_facts(request: ReportRequest) -> dict[str, str]:
    """Return the facts about the model of a run: name -> text."""
    store = request.store or {}
    temperature = request.document["temperature"]
    facts: dict[str, Any] = {
        "model": request.model,
        "formula": formula_text(store),
        "missing values": missing_text(store.get("formula")),
        "temperature": None if temperature == 1.0 else temperature,
    }
    return _texts(facts)


def sampler_facts(request: ReportRequest) -> dict[str, str]:
    """Return the facts about the sampler of a run: name -> text."""
    document = request.document
    sampling = document["sampling"]
    target = sampling.get("target")
    facts: dict[str, Any] = {
        "sampler": document["sampler"],
        "it targets": target and f"{target}: {TARGETS.get(target, '')}",
        "chosen because": sampling.get("reason"),
        "draws": f"{document['draws']:,} of each of {document['chains']} chains, "
        f"after {document['warmup']:,} of warm-up",
        "rows of a subsample": sampling.get("subsample_size"),
        "rows always evaluated": sampling.get("certainty_rows"),
        "seed": str(document["seed"]),
    }
    return _texts(facts)


def draw_versions(request: ReportRequest) -> dict[str, str]:
    """Return versions and processor that made the draws: name -> text."""
    recorded = recorded_versions(request.run.attributes)
    if not recorded:
        return {"unknown": "the run is of a version of streammc that did not record them"}
    versions: dict[str, str] = {}
    for each in recorded:
        first = each["iteration"]
        since = f", from iteration {first:,} on" if first else ""
        versions |= {f"{name}{since}": str(x) for name, x in each.items() if name != "iteration"}
    return versions


def prior_rows(request: ReportRequest) -> list[list[str]]:
    """Return the prior of every parameter as text, and whether it was scaled with the data."""
    priors = request.document.get("priors") or {"parameters": {}, "scaled_with_data": []}
    scaled = set(priors["scaled_with_data"])
    return [
        [label, text, "default, scaled with the data" if label in scaled else "asked for, or fixed"]
        for label, text in priors["parameters"].items()
    ]


def cost_rows(request: ReportRequest) -> list[list[str]]:
    """Return the stages of a run: name, seconds, share of the time, evaluations of rows."""
    sampling = request.document["sampling"]
    counted = (request.document.get("cost") or {}).get("evaluations", {})
    stages = (
        ("passes over all rows", "pass_seconds", "passes"),
        ("warm-up", "warmup_seconds", "warmup"),
        ("draws", "seconds", "draws"),
    )
    seconds = [sampling.get(name) for _, name, _ in stages]
    total = sum(value or 0.0 for value in seconds)
    return [
        [
            words,
            number(value, 3),
            "-" if value is None or not total else f"{value / total:.0%}",
            f"{counted[name]:,}" if name in counted else "-",
        ]
        for (words, _, name), value in zip(stages, seconds, strict=True)
    ]


def cost_facts(request: ReportRequest) -> dict[str, str]:
    """Return rows and bytes read, and what an independent draw costs: name -> text."""
    sampling, cost = request.document["sampling"], request.document.get("cost") or {}
    facts: dict[str, Any] = {
        "rows read": sampling.get("rows_read"),
        "megabytes read": sampling.get("bytes_read") and sampling["bytes_read"] / _MEGABYTE,
        "rows of an iteration": sampling.get("rows_per_iteration"),
    }
    if cost:
        facts["draws worth one independent draw"] = _spread(cost["if"])
        facts["row evaluations for one independent draw"] = _spread(cost["ct"])
    return _texts(facts)


def _spread(ends: Mapping[str, float | None]) -> str:
    low, median, high = (number(ends[end], 3) for end in ("min", "median", "max"))
    return f"{median} in the median over parameters ({low} to {high})"


COLUMNS: Final = {
    "mean": "mean",
    "sd": "sd",
    "median": "median",
    BAND: "",
    "r_hat": "R-hat",
    "ess_bulk": "ESS bulk",
    "ess_tail": "ESS tail",
    "mcse_mean": "MCSE",
}
"""Statistic -> heading; that of ``band``, the interval, is its probability."""
MOST_ROWS: Final = 200


class Table(NamedTuple):
    """A table of the page: headings, and rows whose first cell is their name."""

    caption: str
    headings: tuple[str, ...]
    rows: list[list[str]]
    left_out: int = 0
    """Rows beyond the largest number."""
    words: int = 1
    """Number of columns of words, before those of numbers."""
    notes: int = 0
    """Number of columns of words behind those of numbers."""


def statistics_table(
    caption: str,
    statistics: Mapping[str, Mapping[str, float | None]],
    interval: float,
    units: Mapping[str, str] | None = None,
    references: Mapping[str, Sequence[str]] | None = None,
) -> Table:
    """Return the table of statistics by parameter, with columns of words for what is known.

    These are the reference levels of coefficients and, behind the numbers, ``units``.
    """
    against = reference_texts(references, statistics)
    rows = [
        [
            label,
            *([against.get(label, "")] if against else []),
            *(cell_text(name, entry, interval) for name in COLUMNS),
            *([units.get(label, "")] if units else []),
        ]
        for label, entry in list(statistics.items())[:MOST_ROWS]
    ]
    numbers = (name or interval_heading(interval) for name in COLUMNS.values())
    headings = (
        "parameter",
        *([AGAINST] if against else []),
        *numbers,
        *(["unit"] if units else []),
    )
    left_out = max(len(statistics) - MOST_ROWS, 0)
    return Table(caption, headings, rows, left_out, 2 if against else 1, 1 if units else 0)


def ratios_table(ratios: Mapping[str, Any], interval: float) -> Table | None:
    """Return the table of ratios; ``None`` if no column changes alone."""
    together, kind = set(ratios.get("only_together", ())), str(ratios["kind"])
    rows = ratio_rows(ratios, interval)
    if not rows:
        return None
    caption = f"{kind.capitalize()}s, all other columns as they are"
    if together:
        columns = "1 column" if len(together) == 1 else f"{len(together)} columns"
        caption += f"; {columns} of bases, interactions and terms that share a column " + (
            "never change alone" if len(together) > 1 else "never changes alone"
        )
    headings = (kind, "median", interval_heading(interval))
    return Table(caption, headings, rows[:MOST_ROWS], max(len(rows) - MOST_ROWS, 0))


def units_of(
    blocks: Sequence[Mapping[str, Any]], features: Sequence[str], levels: Collection[str]
) -> dict[str, str]:
    """Return the units of coefficients by label, from the blocks ``table_scale`` of a run.

    A coefficient is ``log odds ratio per unit of distance`` where its exponential has a name, and
    ``per unit of distance`` elsewhere; an intercept is at 0 of every column, and columns of
    ``levels`` have no unit.
    """
    units = {}
    for block in blocks_from_description(blocks):
        own = block.features(features)
        if block.rule != COEFFICIENT or len(block.labels) != len(own):
            continue
        kind = f"log {block.exponential} " if block.exponential else ""
        for label, feature in zip(block.labels, own, strict=True):
            intercept = feature == INTERCEPT
            of = "" if feature in levels else f"per unit of {feature}"
            units[label] = "level, columns at 0" if intercept else f"{kind}{of}".strip()
    return units


_MOST_INTERVALS: Final = 30


def tables(request: ReportRequest) -> tuple[list[Table], Table | None]:
    """Return the tables of a run, that of the table's scale first, and the store's scale apart.

    The second is ``None`` where both scales are the same.
    """
    document, attributes, interval = request.document, request.run.attributes, request.interval
    own, original = document["parameters"], document.get("parameters_original")
    blocks = attributes.get("table_scale") or ()
    levels = attributes.get("references") or {}
    units = units_of(blocks, request.run.feature_names, levels)
    references = document.get("references")
    if original is None:
        note = (
            "On the store's scale: the store, which knows the table's, is not at its place, or has "
            "grown since"
        )
        return [statistics_table(note, own, interval, None, references), *_more(request)], None
    caption = "Coefficients, on the scale of the table's columns"
    first = statistics_table(caption, original, interval, units, references)
    apart = None
    if original != own:
        caption = "On the store's scale: columns of mean 0 and sd 1"
        apart = statistics_table(caption, own, interval, None, references)
    return [first, *_more(request)], apart


def _more(request: ReportRequest) -> list[Table]:
    shown, document = [], request.document
    if document.get("ratios"):
        table = ratios_table(document["ratios"], request.interval)
        shown += [] if table is None else [table]
    if document.get("derived"):
        caption = "Computed from the parameters"
        shown.append(statistics_table(caption, document["derived"], request.interval))
    return shown


class Effect(NamedTuple):
    """What a change of one column does: what is compared, and the ends of its interval."""

    compared: str
    low: float
    median: float
    high: float


def steps_of(run: RunDirectory) -> dict[str, float]:
    """Return the step of every column of numbers: its standard deviation, to two digits.

    Columns of levels, and those of a store that is not standardised, are not there.
    """
    design = run.attributes.get("design") or {}
    scales = (design.get("standardization") or {}).get("scale", ())
    names, levels = design.get("features", ()), run.attributes.get("references") or {}
    pairs = zip(names, scales, strict=False)
    return {
        name: float(f"{scale:.2g}") for name, scale in pairs if name not in levels and scale != 1.0
    }


def effects_of(request: ReportRequest) -> tuple[str, list[Effect]]:
    """Return what the columns that change alone do, and the kind of ratio.

    The kind is empty where the exponential of a coefficient has no name: then the effects are
    changes of the linear predictor.
    """
    document, steps = request.document, steps_of(request.run)
    low, high = interval_names(request.interval)
    found = []
    if ratios := document.get("ratios"):
        kind, together = str(ratios["kind"]), set(ratios.get("only_together", ()))
        entries = {k: v for k, v in ratios["parameters"].items() if k not in together}
        references = ratios.get("references") or {}
    else:
        kind, entries, references = "", _slopes(request), request.run.attributes.get("references")
    for name, entry in entries.items():
        step, against = steps.get(name, 1.0), (references or {}).get(name, ())
        ends = [entry.get(each) for each in (low, "median", high)]
        if None in ends:
            continue
        with np.errstate(over="ignore"):
            values = [np.float64(x) ** step if kind else np.float64(x) * step for x in ends]
        if np.isfinite(values).all() and (not kind or min(values) > 0.0):
            text = compared_text(name, against) if against else f"{name} {step:+g}"
            found.append(Effect(text, *map(float, values)))
    return kind, found


def _slopes(request: ReportRequest) -> dict[str, Mapping[str, float | None]]:
    """Return the statistics of the coefficients of a single linear predictor, by column."""
    original = request.document.get("parameters_original") or {}
    features = request.run.feature_names
    stated = blocks_from_description(request.run.attributes.get("table_scale") or ())
    blocks = [
        block
        for block in stated
        if block.rule == COEFFICIENT and len(block.labels) == len(block.features(features))
    ]
    if len(blocks) != 1:
        return {}
    pairs = zip(features, blocks[0].labels, strict=True)
    alone = {*request.run.feature_names} - {INTERCEPT, *request.only_together}
    return {name: original[label] for name, label in pairs if name in alone and label in original}


def draw_effects(ax: Any, effects: Sequence[Effect], ratio: bool) -> Any:
    """Draw medians and intervals of effects below their names and numbers; ratios on a log axis."""
    plain(ax)
    ax.grid(False, axis="y")
    ax.spines["left"].set_visible(False)
    text = factor_text if ratio else number
    for place, each in enumerate(effects):
        ends = [each.low, each.high]
        ax.plot(ends, [place, place], color=ACCENT, linewidth=2.0, solid_capstyle="butt")
        ax.plot([each.median], [place], color=ACCENT, marker="o", markersize=5)
        shown = f"{text(each.median)} ({between(text(each.low), text(each.high))})"
        for x, side, words in ((0.0, "left", shortened(each.compared)), (1.0, "right", shown)):
            ax.text(
                x, place - 0.33, words, transform=ax.get_yaxis_transform(), ha=side, va="center",
                fontsize="small", color=INK,
                bbox={"facecolor": PAGE, "edgecolor": "none", "pad": 1.0},
            )  # fmt: skip
    if ratio:
        low, high = min(1.0, *(e.low for e in effects)), max(1.0, *(e.high for e in effects))
        margin = (high / low) ** 0.04
        low, high = low / margin, high * margin
        ax.set_xscale("log")
        ax.set_xlim(low, high)
        ax.minorticks_off()
        ax.set_xticks(ratio_ticks(low, high))
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.axvline(1.0 if ratio else 0.0, color=MUTED, linewidth=0.8)
    ax.set_yticks([])
    ax.set_ylim(len(effects) - 0.6, -0.6)
    return ax


_ROUND: Final = (
    *(1.0, 2.0, 0.5, 10.0, 0.1, 5.0, 0.2, 100.0, 0.01, 1000.0, 0.001, 1e5, 1e-5),
    *(1.5, 0.7, 3.0, 0.3, 1.2, 0.8, 1.1, 0.9, 1.05, 0.95, 1.02, 0.98, 1.01, 0.99),
    *(1.005, 0.995, 1.002, 0.998, 1.001, 0.999),
)
"""Ratios for an axis, the most useful first."""
_APART: Final = 6


def ratio_ticks(low: float, high: float) -> list[float]:
    """Return round ratios from ``low`` to ``high`` for a logarithmic axis, some distance apart.

    Examples
    --------
    >>> ratio_ticks(0.9, 2.5), ratio_ticks(0.55, 1.5)
    ([1.0, 1.2, 1.5, 2.0], [0.7, 1.0, 1.2, 1.5])
    """
    gap, ticks = math.log(high / low) / _APART, list[float]()
    for tick in _ROUND:
        if low <= tick <= high and all(abs(math.log(tick / other)) >= gap for other in ticks):
            ticks.append(tick)
    return sorted(ticks)


def answer_figures(request: ReportRequest) -> list[SvgFigure]:
    """Return the figure of what the columns do, on the scale of a ratio where it has a name."""
    kind, effects = effects_of(request)
    shown = effects[:_MOST_INTERVALS]
    if not shown:
        return result_figures(request)
    more = f"; {len(effects) - len(shown)} more in the tables" if len(effects) > len(shown) else ""
    heading, steps = interval_heading(request.interval), steps_of(request.run)
    what = f"{kind.capitalize()}s" if kind else "Changes of the linear predictor"
    words = f"{what}: medians and {heading}s, all other columns as they are{more}."
    if kind:
        words += f" Right of 1 the {kind.removesuffix(' ratio')} is higher, left of it lower."
        words = words.replace("the odds is", "the odds are")
    if any(name in each.compared for name in steps for each in shown):
        words += " A column of numbers moves by about one standard deviation, the step beside it."
    lines = "; ".join(f"{e.compared}: {number(e.median)}" for e in shown)
    return [
        svg_figure(
            "effects",
            lambda figure: draw_effects(figure.subplots(), shown, bool(kind)),
            height=0.6 + 0.4 * len(shown),
            width=4.2,
            text=f"{words} {lines}.",
            caption=words,
        )
    ]


def comparisons_table(request: ReportRequest) -> Table | None:
    """Return the table of the average comparisons; ``None`` if there are none."""
    if not request.comparisons:
        return None
    rows = []
    for each in request.comparisons[:MOST_ROWS]:
        sides = each["contrast"].split(" - ")
        change = ": " + " against ".join(sides) if len(sides) == 2 else f" {each['contrast']}"
        error = each["std_error"]
        decimals = max(1 - math.floor(math.log10(error)), 0) if error else 3
        names = ("estimate", "conf_low", "conf_high")
        text, low, high = (f"{each[name]:+.{decimals}f}" for name in names)
        rows.append([f"{each['term']}{change}", text, between(low, high)])
    response = (request.store or {}).get("response") or "the response"
    headings = ("where", "change", interval_heading(request.interval))
    left_out = max(len(request.comparisons) - MOST_ROWS, 0)
    return Table(f"Change of the mean of {response}", headings, rows, left_out)


def result_figures(request: ReportRequest) -> list[SvgFigure]:
    """Return the figures of intervals: in units of the columns, and of their sd if standardized."""
    own = request.document["parameters"]
    original = request.document.get("parameters_original")
    if original is None or original == own:
        return [_intervals("intervals", own, "on the scale of the table's columns", request)]
    sd = "on the store's scale, so that columns can be compared"
    return [
        _intervals("intervals", original, "on the scale of the table's columns", request),
        _intervals("intervals-sd", own, sd, request),
    ]


def _intervals(
    name: str,
    statistics: Mapping[str, Mapping[str, float | None]],
    scale: str,
    request: ReportRequest,
) -> SvgFigure:
    """Return the figure of the intervals of the coefficients; an intercept would dwarf them."""
    slopes = [label for label in statistics if "Intercept" not in label] or list(statistics)
    shown = slopes[:_MOST_INTERVALS]
    left_out = len(statistics) - len(shown)
    more = f"; {left_out} more in the table" if left_out else ""
    widest = max((abs(statistics[label]["mean"] or 0.0) for label in shown), default=0.0)
    heading, ends = interval_heading(request.interval), interval_names(request.interval)
    return svg_figure(
        name,
        lambda figure: draw_intervals(figure.subplots(), statistics, shown, ends),
        height=0.9 + 0.24 * len(shown),
        text=f"Medians and {heading}s of {len(shown)} parameters {scale}; the largest "
        f"mean is {widest:.3g} in size. The table has the numbers.",
        caption=f"Medians and {heading}s {scale}{more}.",
    )


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
    checks = []
    if r_hats:
        worst = max(r_hats, key=lambda label: r_hats[label])
        limit = R_HAT_OF_ONE if chains == 1 else R_HAT_WARNING
        checks.append(
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
        checks.append(
            Check(
                name="smallest effective sample size",
                value=f"{sizes[worst]:.0f} ({worst})",
                limit=f"at least {least_ess(chains)}",
                passed=sizes[worst] >= least_ess(chains),
                meaning="How many independent draws the correlated ones are worth, in the bulk, in "
                "the tails, or for standard deviations.",
            )
        )
    return checks


def _passes(document: Mapping[str, Any]) -> list[Check]:
    """Return the checks of the passes: certificate, Laplace gap and design effect."""
    sampling, checks = document["sampling"], []
    if sampling.get("decrement") is not None:
        checks.append(
            Check(
                name="certificate: distance of the centre from the mode",
                value=f"{number(sampling['decrement'], 2)} posterior sd",
                limit="" if sampling.get("theta_star_certified") is None else "set by the passes",
                passed=sampling.get("theta_star_certified"),
                meaning="The log-likelihood is approximated by second-order expansions of its rows "
                "(control variates) around a point, theta_star. This is the Newton decrement "
                "there, from the last full pass.",
            )
        )
    for line in document.get("notes", ()):
        checks.append(
            Check(
                name="prior beside the rows",
                value=line,
                meaning="A prior that was given, and that moves a parameter by over 0.25 posterior "
                "sd with over a tenth of the information on it.",
            )
        )
    gap = sampling.get("laplace_gap")
    if gap:
        checks.append(
            Check(
                name="Laplace gap",
                value=f"means within {number(gap['mean'], 2)} sd, sd within a factor "
                f"{number(float(np.exp(gap['log_sd'])), 3)}",
                meaning="How far the draws are from the Gaussian approximation at the mode: small "
                "for many rows, large where the posterior is skewed.",
            )
        )
    if sampling.get("deff") is not None:
        checks.append(
            Check(
                name=f"design effect of runs of {sampling['deff_rows']} rows",
                value=number(sampling["deff"], 3),
                limit=f"at most {DEFF_WARNING:g}",
                passed=sampling["deff"] <= DEFF_WARNING,
                meaning="How much more variance neighbouring rows have than random ones: 1 for "
                "shuffled rows.",
            )
        )
    return checks


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


def trust_figures(request: ReportRequest, shown: list[Check]) -> list[SvgFigure]:
    """Return the figures of the checks: ranks, statistics over the draws, levels, weights."""
    run, document = request.run, request.document
    figures = [_ranks(request)] if document["draws"] >= 4 else []
    stats = run.read_group("sample_stats")
    for place, each in enumerate(shown):
        if each.figure == LEVELS:
            figures.append(_levels(f"check{place}", each, document["tempering"]["levels"]))
        elif each.figure in stats:
            values = np.asarray(stats[each.figure], dtype=float)
            figures.append(_over_draws(f"check{place}", each, values))
    if document.get("audit"):
        weights = run.read_group("audit")["log_weight"]
        audit = Audit.from_json(document["audit"])
        figures.append(
            svg_figure(
                "weights",
                lambda figure: draw_weights(figure.subplots(), weights),
                height=2.6,
                text=f"Histogram of the weights of {audit.draws} audited draws, relative to their "
                f"mean; the largest is {number(audit.largest_weight, 3)}.",
                caption="Weights of the audit. A draw with weight 1 counts as it is.",
            )
        )
    return figures


def _levels(name: str, of: Check, levels: Mapping[str, Any]) -> SvgFigure:
    """Return the figure of the levels of a ladder."""
    return svg_figure(
        name,
        lambda figure: draw_ladder(figure.subplots(2, 1, sharex=True), levels),
        height=3.4,
        text=f"Levels of the ladder. {of.name}: {of.value}.",
        caption=f"Temperature levels and rates between them. {of.meaning}",
    )


def _over_draws(name: str, of: Check, values: NDArray[np.float64]) -> SvgFigure:
    """Return the figure of a statistic (chain, draw) over the draws."""
    limit = f", limit {of.limit}" if of.limit else ""
    return svg_figure(
        name,
        lambda figure: draw_statistic(figure.subplots(), values, of.figure, of.line),
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


class Predicted(NamedTuple):
    """One group of predictions: where it is, its facts and figures."""

    path: str
    facts: dict[str, str]
    figures: list[SvgFigure]


def predicted(place: int, path: str, predictions: xr.Dataset) -> Predicted:
    """Return facts and figures of the predictions at ``path``, number ``place`` of the page."""
    record = facts(predictions)
    area = record.get("auc")
    shown: dict[str, Any] = {
        "rows": record["rows"],
        "of the store": record["store"],
        "draws": record["draws"],
        "bands": interval_heading(record["interval"]),
        "log score of a row": record.get("log_score"),
        "area under the ROC curve": area and _area(area, record["quantiles"]),
        "rows of new groups": record.get("new_group_rows"),
    }
    return Predicted(
        path,
        _texts(shown),
        _predicted_figures(f"predicted{place}", predictions, record),
    )


def _area(area: Mapping[str, float], ends: list[str]) -> str:
    low, high = ends
    return f"{number(area['mean'])} ({number(area[low])} to {number(area[high])})"


def _predicted_figures(
    name: str, predictions: xr.Dataset, record: Mapping[str, Any]
) -> list[SvgFigure]:
    interval = interval_heading(record["interval"])
    figures = []
    if "roc" in predictions:
        area = _area(record["auc"], record["quantiles"])
        figures.append(
            svg_figure(
                f"{name}-roc",
                lambda figure: plot_roc(predictions, ax=figure.subplots()),
                height=4.0,
                text=f"ROC curve; the area under it is {area}.",
                caption=f"ROC curve with its {interval} over the draws; dotted: chance.",
            )
        )
    if "group_mean" in predictions:
        column = record["by"]["column"]
        figures.append(
            svg_figure(
                f"{name}-groups",
                lambda figure: plot_by_covariate(predictions, ax=figure.subplots()),
                height=3.0,
                text=f"Mean response by {record['by']['groups']} groups of {column}: predicted, "
                "with its interval, and realised.",
                caption=f"Calibration by {column}: mean response of groups of rows, predicted "
                f"with its {interval}, and realised.",
            )
        )
    what = what_is_predicted(predictions).capitalize()
    figures.append(
        svg_figure(
            f"{name}-rows",
            lambda figure: draw_bands(figure.subplots(), predictions),
            height=2.8,
            text=f"{what} of some rows with its {interval}, in the order of the mean.",
            caption=f"{what} of evenly spaced rows with its {interval}: how sure the "
            "run is of it, not of a single response.",
        )
    )
    return figures


GENERATOR: Final = "streammc"
_MARK: Final = f'<meta name="generator" content="{GENERATOR}'.encode()
_HEAD_BYTES: Final = 2048


def check_place(output: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Check, before any work, that a report can be written and its packages are installed.

    ConfigError if matplotlib or Jinja2 is missing, or ``output`` has the name of something
    unfinished; IdentityError if it exists, or with ``overwrite``, if it is not a report;
    OutputError if its folder does not exist; AccessError if that may not be written to.
    """
    require_packages("a report", "jinja2", "matplotlib")
    path = Path(output)
    refuse_reserved_name(path)
    if not path.parent.is_dir():
        raise OutputError(
            f"expected an existing folder for {str(path)!r}, found none: make {str(path.parent)!r}"
        )
    if os.path.lexists(path):
        if not overwrite:
            raise IdentityError(
                f"expected nothing at {str(path)!r}, but it exists: choose another path",
                ", or replace a report with --overwrite",
            )
        if not _is_report(path):
            raise IdentityError(
                f"expected a report to overwrite at {str(path)!r}, found something else: choose "
                "another path or delete it yourself"
            )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise AccessError(
            f"expected to create {str(path)!r}, found no permission to write in "
            f"{str(path.parent)!r}: change its permissions, or choose another path"
        )


def _is_report(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return _MARK in file.read(_HEAD_BYTES)
    except OSError:
        return False


def page(request: ReportRequest) -> str:
    """Return the report of a run as HTML; everything from the data is escaped."""
    from jinja2 import Environment, StrictUndefined

    files = resources.files("streammc.report")
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    template = environment.from_string(
        (files / "page.html.jinja").read_text(encoding="utf-8"),
    )
    style = (files / "style.css").read_text(encoding="utf-8")
    return template.render({"style": style, **contents(request)}) + "\n"


def contents(request: ReportRequest) -> Mapping[str, Any]:
    """Return the values of the template by name."""
    document, run = request.document, request.run
    shown_tables, store_table = tables(request)
    shown_checks = checks(document)
    stages = ("stage", "seconds", "share", "evaluations of rows")
    return {
        "name": run.path.name,
        "generator": f"{GENERATOR} {request.versions[GENERATOR]}",
        "verdict": verdict(document),
        "lead": lead(request),
        "answer_figures": answer_figures(request),
        "comparisons": comparisons_table(request),
        "not_compared": request.not_compared,
        "data": data_facts(request),
        "model": model_facts(request),
        "sampler": sampler_facts(request),
        "priors": Table("Priors", ("parameter", "prior", "origin"), prior_rows(request), words=3),
        "result_tables": shown_tables,
        "store_table": store_table,
        "checks": shown_checks,
        "trust_figures": trust_figures(request, shown_checks),
        "predictions": [
            predicted(place, path, opened)
            for place, (path, opened) in enumerate(request.predictions.items())
        ],
        "stages": Table("Time and work by stage", stages, cost_rows(request)),
        "cost": cost_facts(request),
        "commands": request.commands,
        "digests": {"draws (SHA-256)": run.digest(), "store (fingerprint)": run.identity["store"]},
        "draw_versions": draw_versions(request),
        "versions": request.versions,
    }


def write_page(text: str, output: str | os.PathLike[str]) -> int:
    """Write a page in one piece, in place of an old one; return its bytes."""
    from streammc.trace.disk import reporting

    path, data = Path(output), text.encode()
    with reporting("write", path):
        replace_file(path, data)
    return len(data)
