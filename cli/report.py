"""The report of a run that ``sample``, ``resume``, ``diagnose`` and ``audit`` print."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from streammc import registry
from streammc.cli.output import Output, fields, number, table
from streammc.diagnostics.stopping import check_limits, missed_limits, missed_text
from streammc.diagnostics.text import (
    AGAINST,
    BAND,
    cell_text,
    interval_heading,
    ratio_rows,
    reference_texts,
)
from streammc.diagnostics.weights import Audit
from streammc.likelihood.unit_words import unit_of_model
from streammc.samplers.common.sampler import TARGETS, Check
from streammc.settings import INTERVAL
from streammc.verdict import verdict

BRIEF: Final = ("mean", "sd", BAND, "ess_bulk", "r_hat")
COLUMNS: Final = ("mean", "sd", "mcse_mean", "median", BAND, "ess_bulk", "ess_tail", "r_hat")
_SPARED: Final = ("mcse_mean", "ess_tail", "median", AGAINST, "sd", BAND)
"""Columns that a narrow terminal drops, in this order."""
CHECK_FAILED: Final = 1
_PHASES: Final = {"passes": "in passes", "warmup": "in the warm-up", "draws": "in the draws"}


def run_document(path: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON document of a run: path, store, model, sampler, sizes and summary."""
    from streammc.trace.run_directory import RunDirectory

    run = RunDirectory.open(path, verify=False)
    return {
        "run": os.path.abspath(path),
        "store": run.attributes.get("store"),
        "model": run.identity["model"]["name"],
        "sampler": run.attributes.get("sampler", {}).get("name"),
        "seed": run.identity["seed"],
        "temperature": summary.get("sampling", {}).get(
            "temperature", run.identity.get("temperature", 1.0)
        ),
        "chains": run.chains,
        "draws": run.committed_draws,
        "warmup": run.committed_warmup,
        **summary,
    }


def show_run(
    output: Output,
    document: dict[str, Any],
    limits: Mapping[str, float] | None = None,
    asked_to_stop: bool = False,
    *,
    full: bool = True,
    interval: float = INTERVAL,
    answered: bool = False,
) -> int:
    """Print a run and return the exit code: 1 if it misses ``limits`` or its stopping rule.

    ``answered``: its coefficients have been printed. ``full`` and ``interval`` are those of
    :func:`answer_text`.
    """
    code = 0
    if limits:
        document = {**document, "check": check_limits(document["parameters"], limits)}
    for line in document.get("warnings", []):
        output.warn(line)
    for line in document.get("notes", []):
        output.note(line)
    parts = [] if answered else [answer_text(document, full, interval)]
    output.result(document, "\n\n".join([*parts, grounds_text(document, full)]))
    if limits and not document["check"]["passed"]:
        code = CHECK_FAILED
        missed = missed_limits(document["check"])
        output.log("error", f"--check failed: {missed}: give sample or resume more --draws")
    if asked_to_stop and not document["stop"]["passed"]:
        code = CHECK_FAILED
        output.log("error", f"--stop failed: {missed_text(document['stop'])}")
    return code


def answer_text(document: Mapping[str, Any], full: bool = True, interval: float = INTERVAL) -> str:
    """Return the coefficients of a run as text, and odds or rate ratios.

    Coefficients are per unit of the columns of the table. With ``full`` all statistics are there,
    and those on the scale of the store, on which priors act. The statistics have the ends of an
    ``interval``.
    """
    shown: dict[str, Any] = {
        "width": _terminal_width(),
        "columns": COLUMNS if full else BRIEF,
        "interval": interval,
    }
    references, parameters = document.get("references"), document["parameters"]
    original = document.get("parameters_original") or parameters
    parts = [parameter_table(original, references=references, **shown)]
    if full and original != parameters:
        text = parameter_table(parameters, references=references, **shown)
        parts.append(f"on the store's scale, where columns have mean 0 and sd 1:\n{text}")
    if document.get("derived"):
        parts.append("from the parameters:\n" + parameter_table(document["derived"], **shown))
    if document.get("ratios") and (text := ratio_text(document["ratios"], interval)):
        parts.append(text)
    return "\n\n".join(parts)


def grounds_text(document: Mapping[str, Any], full: bool = True) -> str:
    """Return why a run can be trusted as text: audit and verdict; ``full``: all of its making."""
    parts = []
    if full and document.get("priors"):
        parts += priors_lines(document["priors"])
    if document.get("audit"):
        parts.append(audit_text(Audit.from_json(document["audit"])))
    where = {name: document.get(name) for name in ("run", "store", "seed")}
    where["seed"] = str(document.get("seed"))
    if not full:
        facts = {
            "verdict": verdict(document).sentence,
            "sampler": _brief_cost(document),
            **where,
            "more": "--verbose, or streammc diagnose: priors, scales, rows read, seconds by stage",
        }
        return "\n\n".join([*parts, fields(facts)])
    if document.get("sampling"):
        parts.append(cost_text(document["sampling"], document.get("model")))
    if document.get("tempering"):
        parts.append(tempering_text(document["tempering"]))
    if document.get("cost"):
        parts.append(draw_cost_text(document["cost"], unit_of_model(document.get("model"))))
    parts.append(fields(where))
    return "\n\n".join(parts)


def _brief_cost(document: Mapping[str, Any]) -> str:
    """Return sampler, draws and seconds of a run in one line."""
    sampling = document["sampling"]
    seconds = sum(sampling.get(f"{stage}seconds") or 0.0 for stage in ("pass_", "warmup_", ""))
    return (
        f"{document['sampler']}: {document['chains']} chains of {document['draws']:,} draws after "
        f"{document['warmup']:,} of warm-up, {number(seconds, 2)} s"
    )


def parameter_table(
    parameters: Mapping[str, Mapping[str, float | None]],
    width: int | None = None,
    references: Mapping[str, Sequence[str]] | None = None,
    columns: Sequence[str] = COLUMNS,
    interval: float = INTERVAL,
) -> str:
    """Return the table of parameters; columns are dropped until it fits into ``width``.

    With ``references`` a column names the reference levels that a coefficient is against.
    Means and quantiles have as many digits as the error of the mean allows, at least four.
    """
    against = reference_texts(references, parameters)

    def cell(name: str, label: str, entry: Mapping[str, float | None]) -> str:
        return against.get(label, "") if name == AGAINST else cell_text(name, entry, interval)

    columns = [*([AGAINST] if against else []), *columns]
    for spared in ("", *(name for name in _SPARED if name in columns)):
        columns = [name for name in columns if name != spared]
        rows = [
            [label, *(cell(name, label, entry) for name in columns)]
            for label, entry in parameters.items()
        ]
        headings = [interval_heading(interval) if name == BAND else name for name in columns]
        text = table(["parameter", *headings], rows)
        if width is None or max(map(len, text.splitlines())) <= width:
            break
    return text


def _terminal_width() -> int | None:
    """Return the width of the terminal of stdout; ``None`` without a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def ratio_text(ratios: Mapping[str, Any], interval: float = INTERVAL) -> str:
    """Return the table of ratios: the factor between the two sides that each line names."""
    left_out, kind = set(ratios.get("only_together", ())), str(ratios["kind"])
    rows = ratio_rows(ratios, interval)
    headings = [kind, "median", interval_heading(interval)]
    lines = [table(headings, rows)] if rows else []
    if left_out:
        lines.append(
            f"no {kind} of {len(left_out)} column{'s' * (len(left_out) > 1)} of bases, "
            "interactions and terms that share a column: no such column changes alone"
        )
    return "\n".join(lines)


def audit_text(audit: Audit) -> str:
    """Return the audit in a few lines of text."""
    worst = audit.parameters[audit.worst]
    return fields(
        {
            "audit": f"{audit.draws} draws weighted against the exact posterior",
            "largest correction": f"{number(worst.size, 2)} posterior sd "
            f"({audit.worst}, mcse {number(worst.mcse_sd, 2)})",
            "ess of the weights": number(audit.ess),
            "pareto k": number(audit.pareto_k, 2),
        }
    )


def draw_cost_text(cost: Mapping[str, Any], row: str) -> str:
    """Return the text about evaluated rows, inefficiency (``if``) and rows per draw (``ct``)."""
    rows = []
    for shown, name in (("inefficiency factor", "if"), (f"{row}s per independent draw", "ct")):
        rows.append([shown, *(number(cost[name][end], 3) for end in ("min", "median", "max"))])
    counted = cost["evaluations"]
    parts = [f"{counted[name]:,} {words}" for name, words in _PHASES.items()]
    return f"{table(['', 'min', 'median', 'max'], rows)}\n{row}s evaluated: {', '.join(parts)}"


def cost_text(sampling: Mapping[str, Any], model: str | None = None) -> str:
    """Return the text about sampler, target, rows read and time, with lines of the sampler."""
    tempered = tempered_text(sampling.get("temperature", 1.0))
    target, row = sampling.get("target"), unit_of_model(model)
    if target in TARGETS:
        text = TARGETS[target]
        if tempered is not None:
            text = text.replace("the posterior", "the tempered posterior", 1)
        target = f"{target}: {text}"
    names = {
        "acceptance rate": "acceptance_rate",
        "full passes": "passes",
        f"{row}s read": "rows_read",
        "bytes read": "bytes_read",
        "seconds: passes": "pass_seconds",
        "seconds: warm-up": "warmup_seconds",
        "seconds: draws": "seconds",
    }
    name = sampling.get("sampler")
    checks: list[Check] = []
    if name in registry.SAMPLERS:
        checks = registry.sampler(name)().checks({"sampling": sampling, "model": model})
    return fields(
        {
            "sampler": name,
            "target": target,
            "tempered": tempered,
            "reason": sampling.get("reason"),
            f"{row}s always evaluated": sampling.get("certainty_rows"),
            f"{row}s of a subsample": sampling.get("subsample_size"),
            **{label: value for check in checks for label, value in check.receipt.items()},
            **{words: sampling.get(key) for words, key in names.items()},
        }
    )


def tempering_text(tempering: Mapping[str, Any]) -> str:
    """Return the table of the temperature levels, and the facts about the whole ladder."""
    columns = tempering["levels"]
    n = max(map(len, columns.values()), default=0)
    rows = [
        [str(m), *(_level(name, v[m]) if m < len(v) else "-" for name, v in columns.items())]
        for m in range(n)
    ]
    single = {k.replace("_", " "): v for k, v in tempering.items() if k != "levels"}
    words = [name.replace("_", " ") for name in columns]
    return f"{table(['level', *words], rows)}\n\n{fields(single)}"


def _level(column: str, value: float | None) -> str:
    return f"{value:,.0f}" if column == "rows" and value is not None else number(value, 3)


def tempered_text(temperature: float | str) -> str | None:
    """Return the text about the density of the draws at a temperature; ``None`` at 1."""
    if temperature == 1.0:
        return None
    if isinstance(temperature, str):
        return f"temperature {temperature}, then the posterior"
    return f"posterior at temperature {temperature:g}: likelihood^(1/{temperature:g}) x prior"


_SHOWN: Final = 4


_FIX: Final = "fix them with --prior or --prior-scale"


def priors_lines(described: Mapping[str, Any]) -> list[str]:
    """Return one line of the fixed priors and one of the default priors scaled with the data.

    A line without priors is left out.
    """
    scaled = set(described["scaled_with_data"])
    fixed = _shown(described, lambda label: label not in scaled)
    defaults = _shown(described, lambda label: label in scaled)
    lines = [f"priors: {fixed}"] if fixed else []
    if defaults:
        joint = ", jointly normal" if described.get("jointly_normal") else ""
        lines.append(f"default priors, scaled with the data{joint}: {defaults}; {_FIX}")
    return lines


def _shown(described: Mapping[str, Any], wanted: Callable[[str], bool]) -> str:
    """Return the first three priors and the last, often that of a scale, as text."""
    shown = [f"{label} {text}" for label, text in described["parameters"].items() if wanted(label)]
    if len(shown) > _SHOWN + 1:
        shown = [*shown[: _SHOWN - 1], f"{len(shown) - _SHOWN} more", shown[-1]]
    return ", ".join(shown)
