"""The TOML file of ``--config``, and the resolved settings written beside a result."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import click

from streammc.errors import IdentityError, MissingError
from streammc.unfinished import replace_file

_LIMIT: Final = 1 << 20


def read_configuration(
    path: str, command: click.Command, *, except_for: Collection[str] = ()
) -> dict[str, Any]:
    """Return the settings in a TOML file as command-line texts, by parameter name.

    Top-level keys are the long names of the options (dashes or underscores) or of the
    arguments; a key that only other commands have is ignored. A table with the name of the
    command has settings of this command only, which take precedence.

    Raises
    ------
    MissingError
        If there is no such file.
    IdentityError
        If the file is not TOML, or a key is unknown (with a suggestion) or given twice.
    """
    from streammc.cli.app import COMMANDS

    document = parse_toml(path)
    known = {
        param.name: param
        for param in command.params
        if param.name is not None and param.name not in except_for
    }
    names = {_long_name(param): param for param in known.values()}
    hidden = {name.replace("_", "-") for name in except_for}
    settings: dict[str, Any] = {}
    for key in COMMANDS:
        if not isinstance(document.get(key, {}), dict):
            raise IdentityError(f"expected a table [{key}] in {path!r}, found a value: remove it")
    shared = {key: value for key, value in document.items() if key not in COMMANDS}
    for table in (shared, document.get(command.name or "", {})):
        seen: dict[str, str] = {}
        for key, value in table.items():
            name = key.replace("_", "-")
            if name not in names:
                if table is shared and name in _of_other_commands() and name not in hidden:
                    continue
                raise IdentityError(_unknown(key, path, names, command))
            if name in seen:
                raise IdentityError(
                    f"expected {key!r} once in {path!r}, found it also as {seen[name]!r}: keep one"
                )
            seen[name] = key
            param = names[name]
            settings[param.name or ""] = _texts(key, value, param, path)
    return settings


def parse_toml(path: str) -> dict[str, Any]:
    """Return the document in a TOML file; see :func:`read_configuration` for the errors."""
    import tomllib

    try:
        with open(path, "rb") as file:
            data = file.read(_LIMIT + 1)
    except FileNotFoundError:
        raise MissingError(
            f"expected a configuration at {path!r}, found nothing: check the path"
        ) from None
    except IsADirectoryError:
        raise IdentityError(
            f"expected a TOML file at {path!r}, found a folder: give the file"
        ) from None
    if len(data) > _LIMIT:
        raise IdentityError(
            f"expected a configuration under 1 MB, found more in {path!r}: give a smaller file"
        )
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise IdentityError(f"expected TOML in {path!r}, found {error}: mend the file") from None


def _of_other_commands() -> set[str]:
    """Return the names of the settings of all commands that read a configuration."""
    from streammc.cli.app import COMMANDS, application

    found: set[str] = set()
    context = click.Context(application)
    for name in COMMANDS:
        command = application.get_command(context, name)
        assert command is not None
        names = {_long_name(param) for param in command.params}
        if "config" in names:
            found |= names
    return found


def _long_name(param: click.Parameter) -> str:
    options = [name for name in param.opts if name.startswith("--")]
    return options[0].lstrip("-") if options else str(param.name).replace("_", "-")


def _unknown(key: str, path: str, names: Collection[str], command: click.Command) -> str:
    near = get_close_matches(key.replace("_", "-"), names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(sorted(names))}"
    return f"unknown key {key!r} for {command.name} in {path!r}: {hint}"


def _texts(key: str, value: Any, param: click.Parameter, path: str) -> Any:
    """Return a TOML value as command-line texts, so that both get the same checks."""
    many = param.nargs == -1 or getattr(param, "multiple", False)
    if isinstance(value, dict) and many:
        return [f"{name}={option_text(item)}" for name, item in value.items()]
    if isinstance(value, dict):
        raise IdentityError(
            f"expected a value for {key!r} in {path!r}, found a table"
            ": write a number, a text or a list"
        )
    if isinstance(value, list):
        if not many:
            return ",".join(quoted(option_text(item)) for item in value)
        return [option_text(item) for item in value]
    return [option_text(value)] if many else option_text(value)


def option_text(value: Any) -> str:
    """Return a TOML value as the text of a command-line option."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def quoted(text: str) -> str:
    """Return a name as an item of a list separated by commas."""
    if "," not in text and '"' not in text:
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON file atomically; do nothing if it already has this content."""
    from streammc.cli.output import plain

    text = json.dumps(plain(document), indent=2) + "\n"
    try:
        if path.read_text(encoding="utf-8") == text:
            return
    except (OSError, UnicodeDecodeError):
        pass
    replace_file(path, text.encode())
