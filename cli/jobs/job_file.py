"""The keys of ``job.toml``: dataclasses that parse it, and of which its JSON Schema is made.

A key that is a setting of a command is stated there: the stage of the job passes the value on.
"""

from __future__ import annotations

import glob
import operator
import os
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import (
    MISSING,
    Field,
    dataclass,
    field,
    fields,
    is_dataclass,
    make_dataclass,
    replace,
)
from difflib import get_close_matches
from functools import partial
from pathlib import PurePath
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from streammc.cli.command_settings import (
    IngestSettings,
    PredictSettings,
    ReportSettings,
    SampleSettings,
    ScoreSettings,
)
from streammc.cli.configuration import parse_toml
from streammc.cli.jobs.problems import Problem
from streammc.cli.options import plain_type
from streammc.errors import MissingError, StreammcError
from streammc.settings import setting, stated_fields

if TYPE_CHECKING:
    from streammc.stores.sources.input_files import InputFile


def key(
    text: str,
    default: Any = None,
    *,
    parameter: str | None = None,
    path: bool = False,
    **bounds: float,
) -> Any:
    """Return the field of a key that no option of a command describes.

    Parameters
    ----------
    text
        Description.
    default
        Default; ``MISSING`` for a key that must be there.
    parameter
        Setting of the command that takes its value; ``None``: none.
    path
        Whether the value is a path, relative to the folder of the file.
    **bounds
        ``minimum``, ``exclusiveMinimum`` and the like, as in JSON Schema.
    """
    metadata = {"help": text, "parameter": parameter, "path": path, **bounds}
    return field(default=default, metadata=metadata)


def table(name: str, text: str, settings: type, **own: tuple[Any, Any]) -> type:
    """Return the dataclass of a table whose keys are settings of a command.

    Parameters
    ----------
    name
        Name of the table.
    text
        Description.
    settings
        Class of the settings; those with this table as ``key`` are keys.
    **own
        Types and fields of other keys; one with the name of a setting takes its place.
    """
    hints, keys = get_type_hints(settings), {}
    for each in stated_fields(settings):
        for stated_key in each.metadata.get("key", "").split():
            place, _, written = stated_key.partition(".")
            if place != name:
                continue
            default = MISSING if each.default is MISSING else None
            stated = field(default=default, metadata={**each.metadata, "parameter": each.name})
            keys[written or each.name] = (_toml_type(each, plain_type(hints[each.name])), stated)
    named = [(written, *stated) for written, stated in {**keys, **own}.items()]
    space = {"__doc__": text}
    return make_dataclass(name.title(), named, frozen=True, kw_only=True, namespace=space)


def _toml_type(each: Field[Any], hint: Any) -> Any:
    """Return the type that a setting has in a job file."""
    kind, choices = each.metadata.get("kind"), each.metadata.get("choices")
    if choices:
        return Literal[choices]
    return tuple[str, ...] if kind in ("formulas", "names", "spellings") else hint


@dataclass(frozen=True, kw_only=True)
class Source:
    """The rows: tables to ingest, or a store that exists."""

    files: tuple[str, ...] | None = key(
        "CSV, Parquet or Arrow files, folders of them, patterns such as 'flights-*.parquet', or "
        "addresses of these (s3://bucket/flights); folders name=value are columns.",
        path=True,
    )
    store: str | None = key("A store that exists, or its address, in place of files.", path=True)
    append: tuple[str, ...] | None = key(
        "Files of new rows, or patterns that may find none yet: those that the store does not have "
        "are appended as its next generation. Outputs then have {generation} in their paths.",
        path=True,
    )


Ingest: Final = table("ingest", "How the tables become a store.", IngestSettings)
Model: Final = table(
    "model",
    "The likelihood.",
    SampleSettings,
    options=(Mapping[str, Any], key("Options of the model.", parameter="option")),
)
Sampler: Final = table(
    "sampler",
    "How the posterior is sampled.",
    SampleSettings,
    seed=(int, key("Seed of all draws.", 0, parameter="seed", minimum=0)),
    options=(Mapping[str, Any], key("Any other option of the sampler.", parameter="option")),
)
Score: Final = table(
    "score", "Scores of the model on the rows it was fitted to, each left out.", ScoreSettings
)
Predict: Final = table(
    "predict",
    "The rows that are predicted: by default those of the job's own store.",
    PredictSettings,
    files=(
        tuple[str, ...],
        key("Tables with the same columns, ingested like the job's own.", path=True),
    ),
    store=(str, key("A store that exists, in place of files.", path=True)),
)
Report: Final = table("report", "How results are shown, as text and as a page.", ReportSettings)


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Until when draws are made."""

    ess: float | None = key("Least effective sample size of every parameter.", exclusiveMinimum=0)
    rhat: float | None = key("Largest R-hat of every parameter.", exclusiveMinimum=1)
    time: str | float | None = key(
        "Longest time of warm-up and draws: seconds, or a text such as '2h'."
    )
    draws: int | None = key("Most draws per chain.", minimum=1)


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Where results go.

    Paths are relative to the folder of the file. {date} in one is the day of the start, {hash} a
    digest of settings and inputs.
    """

    run: str = key(
        "The run: draws, checkpoints and summary; a path or an address.", MISSING, path=True
    )
    store: str | None = key("The store made of source.files.", path=True)
    control_variates: str | None = key(
        "Control variates, kept apart for other runs; by default in the run.", path=True
    )
    scores: str | None = key("Scores, JSON; none without this key.", path=True)
    rows: str | None = key("The store made of predict.files.", path=True)
    predictions: str | None = key("Predictions; none without this key.", path=True)
    report: str | None = key("A page about the run, HTML; none without.", path=True)
    summary: str = key("JSON file with the end of the job.", "summary.json", path=True)
    keep: int | None = key(
        "How many of the sets of outputs that differ by {date}, {hash} or {generation} stay: once "
        "the job is done, older ones that this file has made are deleted.  [default: all]",
        minimum=1,
    )

    def paths(self) -> dict[str, str]:
        """Return the outputs that are asked for, by key."""
        known = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: path for name, path in known.items() if isinstance(path, str)}

    def named(self, words: Mapping[str, str]) -> Outputs:
        """Return these outputs with words of their paths, such as ``{date}``, replaced."""
        paths: dict[str, Any] = self.paths()
        for word, text in words.items():
            paths = {name: path.replace(word, text) for name, path in paths.items()}
        return replace(self, **paths)


@dataclass(frozen=True, kw_only=True)
class JobFile:
    """A job of streammc: from tables to a posterior and predictions."""

    source: Source = setting(table=Source)
    ingest: Any = setting(None, table=Ingest)
    model: Any = setting(table=Model)
    priors: Mapping[str, str] | None = key(
        "Priors by parameter name or pattern, '*' for all other coefficients."
    )
    sampler: Any = setting(None, table=Sampler)
    stop: Stop | None = setting(None, table=Stop)
    score: Any = setting(None, table=Score)
    predict: Any = setting(None, table=Predict)
    report: Any = setting(None, table=Report)
    outputs: Outputs = setting(table=Outputs)


def in_folder(folder: str, path: str) -> str:
    """Return a path of a job file in the folder of the file; an address as it is."""
    from streammc.trace.addresses import is_address

    return path if is_address(path) else os.path.join(folder, path)


def tables_in_folder(folder: str, path: str) -> str:
    """Return the path or pattern of tables of a job file in the folder of the file.

    Where the name of the folder has wildcards, such as ``run[1]``, they are escaped: they would
    match another folder.
    """
    joined = in_folder(folder, path)
    if joined == path or glob.escape(folder) == folder or os.path.lexists(joined):
        return joined  # a path that exists is no pattern
    return os.path.join(glob.escape(folder), path)


def absolute(path: str) -> str:
    """Return a path as an absolute one; an address as it is."""
    from streammc.trace.addresses import is_address

    return path if is_address(path) else os.path.abspath(path)


def files_of(paths: Sequence[str]) -> list[InputFile]:
    """Return the files of paths, patterns, folders and addresses that find some, each once.

    Raises
    ------
    StreammcError
        If a folder, or the service of an address, cannot be read.
    """
    from streammc.stores.sources.tables import distinct_files, named_files

    found: list[InputFile] = []
    for path in paths:
        try:
            found += named_files(path)
        except MissingError:
            continue
    return distinct_files(found)


def input_faults(paths: Sequence[str], key: str, *, may_lack: bool = False) -> Iterator[Problem]:
    """Yield a fault for every path, pattern, folder or address without a file.

    With ``may_lack`` a pattern may find nothing.
    """
    from streammc.stores.sources.input_files import is_pattern
    from streammc.stores.sources.tables import named_files

    for position, path in enumerate(paths):
        try:
            named_files(path)
        except StreammcError as error:
            if may_lack and isinstance(error, MissingError) and is_pattern(path):
                continue
            yield Problem(f"{key}[{position}]", str(error), error.exit_code, error.code)


def alone(file: InputFile) -> str:
    """Return a source that finds this file alone, with the columns of the folders above it.

    A pattern has the columns of the folders from its first wildcard on: ``day[=]1`` matches the
    folder ``day=1`` alone.
    """
    if not file.partitions:
        return file.path
    head, mark, tail = file.path.rpartition("://")
    parts = list(PurePath(tail).parts)
    left = len(file.partitions)
    for place in reversed(range(len(parts) - 1)):
        name, equals, value = parts[place].partition("=")
        if left and name and equals:
            left -= 1
            parts[place] = f"{glob.escape(name)}[=]{glob.escape(value)}"
        else:
            parts[place] = glob.escape(parts[place])
    parts[-1] = glob.escape(parts[-1])
    return head + mark + str(PurePath(*parts))


_KINDS: Final = {
    str: ("a text", "'text'"),
    bool: ("true or false", "true"),
    int: ("a whole number", "1000"),
    float: ("a number", "0.5"),
    tuple: ("a list of texts", "['a', 'b']"),
    Mapping: ("a table", "key = value"),
}


def read_job(path: str) -> tuple[JobFile, list[Problem]]:
    """Return the job in a TOML file, with paths from here, and the faults of the file.

    Keys with a fault are left out, so that what is wrong with the others can be found too.

    Raises
    ------
    MissingError, IdentityError
        If there is no such file, or it is not TOML.
    """
    problems: list[Problem] = []
    job = parsed(JobFile, parse_toml(path), "", problems)
    folder = os.path.dirname(path)
    return (
        with_paths(job, partial(in_folder, folder), partial(tables_in_folder, folder)),
        problems,
    )


def parsed(kind: type, document: Mapping[str, Any], where: str, problems: list[Problem]) -> Any:
    """Return a dataclass made of a TOML table; faults are added to ``problems``.

    A key with a fault is as if it were left out; one that is required is ``None`` then.

    Parameters
    ----------
    kind
        The dataclass.
    document
        The table.
    where
        Path of the table in the file; empty at the top.
    problems
        List of the faults found so far.
    """
    hints = get_type_hints(kind)
    known = {each.name: each for each in fields(kind)}
    names = {name.replace("_", "-"): name for name in known}
    values: dict[str, Any] = {}
    for written, value in document.items():
        name = names.get(written.replace("_", "-"))
        place = f"{where}.{written}" if where else written
        if name is None:
            problems.append(Problem(place, _unknown(written, list(known), where)))
        elif name in values:
            problems.append(Problem(place, "expected this key once, found it twice: keep one"))
        else:
            found = _value(hints[name], known[name], value, place, problems)
            if found is not None:
                values[name] = found
    for name, each in known.items():
        if each.default is MISSING:
            values.setdefault(name, None)
        if name not in document and each.default is MISSING:
            place = f"{where}.{name}" if where else name
            text = "expected this key, found nothing: add it"
            if "table" in each.metadata:
                text = f"expected a table [{name}], found nothing: add it"
            problems.append(Problem(place, text))
    return kind(**values)


def _value(hint: Any, each: Field[Any], value: Any, place: str, problems: list[Problem]) -> Any:
    """Return a TOML value as its field has it; a fault is added to ``problems``."""
    kind = plain_type(hint)
    if "table" in each.metadata:
        if isinstance(value, dict):
            return parsed(each.metadata["table"], value, place, problems)
        text = f"expected a table [{place}], found {_shown(value)}: write one"
        problems.append(Problem(place, text))
        return None
    fault = _fault(kind, value) or _out_of_bounds(each.metadata, value)
    if fault:
        problems.append(Problem(place, fault))
        return None
    return tuple(value) if get_origin(kind) is tuple else value


def _fault(kind: Any, value: Any) -> str:
    """Return what is wrong with the type of a value; empty if nothing is."""
    if get_origin(kind) is Literal:
        if value in get_args(kind):
            return ""
        words = " or ".join(repr(word) for word in get_args(kind))
        return f"expected {words}, found {_shown(value)}: choose one of them"
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    if any(_is_a(option, value) for option in options):
        return ""
    names = [_KINDS[_base(option)] for option in options]
    what = " or ".join(name for name, _ in names)
    return f"expected {what}, found {_shown(value)}: write one, such as {names[0][1]}"


def _base(kind: Any) -> Any:
    origin = get_origin(kind)
    return kind if origin is None else tuple if origin is tuple else Mapping


def _is_a(kind: Any, value: Any) -> bool:
    base = _base(kind)
    if base is tuple:
        return isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)
    if base is Mapping:
        wanted = get_args(kind)[1]
        return isinstance(value, dict) and (
            wanted is Any or all(isinstance(each, wanted) for each in value.values())
        )
    if isinstance(value, bool):
        return base is bool
    return isinstance(value, (int, float) if base is float else base)


_BOUNDS: Final = {
    "minimum": ("of at least", operator.ge),
    "exclusiveMinimum": ("above", operator.gt),
    "exclusiveMaximum": ("below", operator.lt),
}
"""Bounds of JSON Schema that a key can have, in words."""


def _out_of_bounds(facts: Mapping[str, Any], value: Any) -> str:
    """Return which bound a number breaks; empty if none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    for name, (words, holds) in _BOUNDS.items():
        if name in facts and not holds(value, facts[name]):
            return f"expected a number {words} {facts[name]}, found {value}: give another one"
    return ""


def _shown(value: Any) -> str:
    """Return a TOML value and its type as text."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return f"the list {value}" if value else "an empty list"
    text = repr(value) if isinstance(value, str) else str(value).lower()
    return text if len(text) < 80 else f"{text[:76]}..."


def _unknown(name: str, known: list[str], where: str) -> str:
    near = get_close_matches(name.replace("-", "_"), known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}"
    return f"unknown {'key' if where else 'table'} {name!r}: {hint}"


def with_paths(
    value: Any, change: Callable[[str], str], change_tables: Callable[[str], str]
) -> Any:
    """Return a dataclass of the file with every path replaced by ``change(path)``.

    A list has paths or patterns of tables: those are replaced by ``change_tables(path)``.
    """
    changed: dict[str, Any] = {}
    for each in fields(value):
        found = getattr(value, each.name)
        if is_dataclass(found):
            changed[each.name] = with_paths(found, change, change_tables)
        elif found is not None and each.metadata.get("path"):
            several = isinstance(found, tuple)
            changed[each.name] = tuple(map(change_tables, found)) if several else change(found)
    return replace(value, **changed)


DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_TYPES: Final[dict[Any, str]] = {str: "string", bool: "boolean", int: "integer", float: "number"}


def job_schema() -> dict[str, Any]:
    """Return the schema as JSON."""
    return {"$schema": DRAFT, "title": "job.toml of streammc", **_table(JobFile)}


def _table(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    known = fields(kind)
    wanted = [each.name for each in known if each.default is MISSING]
    return {
        "type": "object",
        "description": (kind.__doc__ or "").strip(),
        "properties": {each.name: _key(each, hints[each.name]) for each in known},
        **({"required": wanted} if wanted else {}),
        "additionalProperties": False,
    }


def _key(each: Field[Any], hint: Any) -> dict[str, Any]:
    """Return the schema of one key."""
    if "table" in each.metadata:
        return _table(each.metadata["table"])
    bounds = {name: each.metadata[name] for name in _BOUNDS if name in each.metadata}
    found = {"description": each.metadata["help"], **_of_type(plain_type(hint)), **bounds}
    if each.default not in (MISSING, None):
        found["default"] = each.default
    return found


def _of_type(kind: Any) -> dict[str, Any]:
    origin = get_origin(kind)
    if origin is Literal:
        return {"enum": list(get_args(kind))}
    if origin is tuple:
        return {"type": "array", "items": {"type": "string"}, "minItems": 1}
    if origin in (Union, UnionType):
        return {"type": [_TYPES[each] for each in get_args(kind)]}
    if origin is not None:  # a mapping
        each = get_args(kind)[1]
        inner = {} if each is Any else {"additionalProperties": {"type": _TYPES[each]}}
        return {"type": "object", **inner}
    return {"type": _TYPES[kind]}
