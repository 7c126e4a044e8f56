"""``job.toml`` read into its dataclasses; every fault is found, not the first alone."""

from __future__ import annotations

import operator
import os
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from streammc.cli.configuration import parse_toml
from streammc.cli.jobs.job_file import JobFile
from streammc.cli.jobs.job_inputs import in_folder, tables_in_folder
from streammc.cli.jobs.problems import Problem

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
            if is_dataclass(plain_type(hints[name])):
                text = f"expected a table [{name}], found nothing: add it"
            problems.append(Problem(place, text))
    return kind(**values)


def plain_type(hint: Any) -> Any:
    """Return a type without its ``| None``."""
    if get_origin(hint) in (Union, types.UnionType):
        rest = [each for each in get_args(hint) if each is not types.NoneType]
        return rest[0] if len(rest) == 1 else Union[tuple(rest)]  # noqa: UP007
    return hint


def _value(hint: Any, each: Field[Any], value: Any, place: str, problems: list[Problem]) -> Any:
    """Return a TOML value as its field has it; a fault is added to ``problems``."""
    kind = plain_type(hint)
    if is_dataclass(kind):
        if isinstance(value, dict):
            return parsed(kind, value, place, problems)  # type: ignore[arg-type]
        text = f"expected a table [{place}], found {_shown(value)}: write one"
        problems.append(Problem(place, text))
        return None
    fault = _fault(kind, value) or _out_of_bounds(each.metadata["bounds"], value)
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


def _out_of_bounds(bounds: Mapping[str, float], value: Any) -> str:
    """Return which bound of JSON Schema a number breaks; empty if none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    kept = {
        "minimum": ("of at least", operator.ge),
        "exclusiveMinimum": ("above", operator.gt),
        "exclusiveMaximum": ("below", operator.lt),
    }
    for name, limit in bounds.items():
        words, holds = kept[name]
        if not holds(value, limit):
            return f"expected a number {words} {limit}, found {value}: give another one"
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
