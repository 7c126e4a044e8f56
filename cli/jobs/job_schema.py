"""JSON Schema of ``job.toml``, made of its dataclasses and of the help of the options."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from streammc.cli.jobs.job_file import SAME, JobFile
from streammc.cli.jobs.job_parsing import plain_type

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
        "properties": {each.name: _key(kind, each, hints[each.name]) for each in known},
        **({"required": wanted} if wanted else {}),
        "additionalProperties": False,
    }


def _key(kind: type, each: Field[Any], hint: Any) -> dict[str, Any]:
    """Return the schema of one key."""
    plain = plain_type(hint)
    if is_dataclass(plain):
        return _table(plain)  # type: ignore[arg-type]
    found = {"description": described(kind, each), **_of_type(plain), **each.metadata["bounds"]}
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


def described(kind: type, each: Field[Any]) -> str:
    """Return the description of a key: its own, or that of its option."""
    own: str = each.metadata["text"]
    return own or _help(kind.command)[option_of(each) or ""]  # type: ignore[attr-defined]


def option_of(each: Field[Any]) -> str | None:
    """Return the option of a key, without dashes in front; ``None`` if it has none."""
    option: str | None = each.metadata["option"]
    return each.name.replace("_", "-") if option == SAME else option


@cache
def _help(command: str) -> dict[str, str]:
    """Return the help of every option of a command, by its long name."""
    import click

    from streammc.cli.app import application

    found = application.get_command(click.Context(application), command)
    assert found is not None
    return {
        name.removeprefix("--"): str(parameter.help)
        for parameter in found.params
        if isinstance(parameter, click.Option)
        for name in parameter.opts
    }
