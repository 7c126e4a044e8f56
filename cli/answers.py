"""``streammc comparisons``, ``slopes`` and ``predictions``: averages over all rows of a table."""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from streammc.cli.options import CodeOption, argument, command, parse_scheduler
from streammc.cli.output import Output, number, table
from streammc.cli.progress import Progress
from streammc.diagnostics.text import interval_heading
from streammc.errors import ConfigError, IdentityError
from streammc.settings import IntervalOption, OverwriteOption, PassOptions, setting

SUFFIXES: Final = (".csv", ".parquet")


@dataclass(frozen=True, kw_only=True)
class AverageSettings(IntervalOption, PassOptions, OverwriteOption, CodeOption):
    """Settings of commands that average over the rows of a table."""

    run: str = argument("run")
    table: str | None = argument("path", None)
    by: tuple[str, ...] = setting(
        (), "Average within the values of this column; repeatable.", kind="text", multiple=True,
        metavar="COLUMN", environment=False,
    )  # fmt: skip
    by_row: bool = setting(False, "An answer for each row of a small TABLE.", environment=False)
    category: tuple[int, ...] = setting(
        (), "Average the probability of this category in place of the mean response; repeatable.",
        kind="category", multiple=True, metavar="NUMBER", environment=False,
    )  # fmt: skip
    at: str | None = setting(
        None, "mean: one row of means and most frequent levels in place of all rows, or of each "
        "group of --by.", choices=["mean"], environment=False,
    )  # fmt: skip
    groups: str = setting(
        "new", "Of a mixed model: new groups, or the known groups of the rows.",
        choices=["new", "known"], environment=False,
    )  # fmt: skip
    weights: str | None = setting(
        None, "A row counts as its value of this column.", kind="text", metavar="COLUMN",
        environment=False, show_default="its weight, trials included",
    )  # fmt: skip
    no_weights: bool = setting(False, "Count every row once.")
    hypothesis: tuple[str, ...] = setting(
        (), "Equation of the rows of the result, such as 'b1 - b2 = 0'; repeatable.",
        kind="text", multiple=True, metavar="TEXT", environment=False,
    )  # fmt: skip
    average_draws: int | None = setting(
        None, "Number of draws, thinned from all chains.", minimum=2,
        show_default="4000, or 100 for known groups",
    )  # fmt: skip
    output: str | None = setting(
        None, "FILE.csv or .parquet to make.", kind="path", short=["-o"], environment=False
    )


@dataclass(frozen=True, kw_only=True)
class SlopesSettings(AverageSettings):
    """Settings of ``streammc slopes``."""

    variables: tuple[str, ...] = setting(
        (), "Column of numbers; repeatable.", kind="text", multiple=True, metavar="NAME",
        environment=False,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ComparisonsSettings(AverageSettings):
    """Settings of ``streammc comparisons``."""

    variables: tuple[str, ...] = setting(
        (), "NAME, NAME=1, NAME=sd, NAME=[10,20], NAME=pairwise or NAME=[a,b]; repeatable.",
        kind="text", multiple=True, metavar="NAME[=WHAT]", environment=False,
    )  # fmt: skip
    comparison: str = setting(
        "difference", "Of averages: difference, ratio, lnratio or lnor.", kind="text"
    )


@command("comparisons", ComparisonsSettings)
def comparisons(ctx: click.Context, settings: ComparisonsSettings) -> None:
    """Compare the mean response of all rows between two values of a variable.

    TABLE is a store, a file or a folder with the columns of the run RUN; without it, the store of
    the run. All rows keep their other values. Every variable is compared if none is named.
    """
    named = [_variable(text) for text in _listed(settings.variables)]
    variables = dict(named) or None
    if len(named) > len(variables or ()):
        raise ConfigError(
            f"expected each variable once, found {' and '.join(settings.variables)}: ask for one "
            "after the other"
        )
    _answer(ctx, settings, "comparisons", variables=variables, comparison=settings.comparison)


@command("slopes", SlopesSettings)
def slopes(ctx: click.Context, settings: SlopesSettings) -> None:
    """Average the slope of the mean response in a variable over all rows.

    TABLE is a store, a file or a folder with the columns of the run RUN; without it, the store of
    the run.
    """
    _answer(ctx, settings, "slopes", variables=_listed(settings.variables) or None)


@command("predictions", AverageSettings)
def predictions(ctx: click.Context, settings: AverageSettings) -> None:
    """Average the mean response over all rows, or over groups of rows.

    TABLE is a store, a file or a folder with the columns of the run RUN; without it, the store of
    the run. Predictions of every row are made by streammc predict.
    """
    _answer(ctx, settings, "predictions")


def _listed(texts: Sequence[str]) -> list[str]:
    """Return the parts between the commas of each text, but for those inside of brackets."""
    return [part.strip() for text in texts for part in re.split(r",(?![^\[]*\])", text)]


def _variable(text: str) -> tuple[str, Any]:
    """Return name and values of ``NAME[=WHAT]``."""
    name, given, what = text.partition("=")
    if not name or (given and not what):
        raise ConfigError(
            f"expected NAME or NAME=WHAT as a variable, found {text!r}: write it as in distance=1"
        )
    if not given:
        return name, None
    if what.startswith("[") and what.endswith("]"):
        return name, [each.strip() for each in what[1:-1].split(",")]
    try:
        return name, float(what)
    except ValueError:
        return name, what


def _answer(ctx: click.Context, settings: AverageSettings, kind: str, **asked: Any) -> None:
    """Ask a function of ``streammc.averages``, and print or write what it returns."""
    from streammc import averages
    from streammc.cli.build import model_of_run
    from streammc.cli.execute import store_of_run
    from streammc.cli.receipt import require_apart
    from streammc.cli.score import require_folder
    from streammc.trace.run_directory import RunDirectory

    printer: Output = ctx.obj
    output = None
    if settings.output is not None:
        output = _writable(settings.output, settings.overwrite)
        require_folder(settings.output)
        require_apart(settings.output, [settings.run, settings.table or settings.run])
    weighted = not settings.no_weights
    if settings.weights and not weighted:
        raise ConfigError("expected --weights or --no-weights, found both: leave one out")
    opened = RunDirectory.open(settings.run)
    model = model_of_run(opened.identity, opened.attributes.get("settings"), settings.allow_code)
    rows: Any = settings.table
    if rows is None and opened.attributes.get("store") == "memory":
        raise ConfigError(
            "expected a table beside a run without a store, found none: give the file that was "
            f"fitted, as in streammc {kind} {settings.run} FILE"
        )
    if rows is None:
        rows = store_of_run(opened, "TABLE")
    with (
        warnings.catch_warnings(record=True) as caught,
        Progress(printer, ctx.find_root().obj) as progress,
    ):
        warnings.simplefilter("always", UserWarning)
        found = getattr(averages, kind)(
            settings.run, rows, model=model, by=settings.by, by_row=settings.by_row,
            category=settings.category,
            at=settings.at, groups=settings.groups, weights=settings.weights or weighted,
            hypothesis=settings.hypothesis, interval=settings.interval,
            draws=settings.average_draws,
            scheduler=parse_scheduler(settings.scheduler), progress=progress.of(kind), **asked,
        )  # fmt: skip
    lines = [str(each.message) for each in caught if issubclass(each.category, UserWarning)]
    for line in lines:
        printer.warn(line)
    if output is not None:
        _write(output, found)
    document = {
        kind: found.to_pylist(),
        "interval": settings.interval,
        "run": settings.run,
        **({} if output is None else {"output": settings.output}),
        **({"warnings": lines} if lines else {}),
    }
    printer.result(document, _human(found, settings.interval))


def _writable(path: str, overwrite: bool) -> Path:
    """Return the file to make; ConfigError or IdentityError if it cannot be made."""
    if not path.endswith(SUFFIXES):
        raise ConfigError(
            f"expected an output that ends in {' or '.join(SUFFIXES)}, found {path!r}: name it so"
        )
    if os.path.lexists(path) and not overwrite:
        raise IdentityError(
            f"expected no file at {path!r}, found one: give --overwrite, or another name"
        )
    return Path(path)


def _write(path: Path, found: Any) -> None:
    import pyarrow.csv
    import pyarrow.parquet

    from streammc.unfinished import replace_file

    file = io.BytesIO()
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(found, file)
    else:
        pyarrow.parquet.write_table(found, file)
    replace_file(path, file.getvalue())


def _human(found: Any, interval: float) -> str:
    """Return the answers as a table of text."""
    names = [name for name in found.column_names if name != "error"]
    rows = [
        [number(value) if isinstance(value, float) else str(value) for value in row]
        for row in zip(*(found[name].to_pylist() for name in names), strict=True)
    ]
    return f"{table(names, rows)}\n\n{interval_heading(interval)}s, from draws of the posterior"
