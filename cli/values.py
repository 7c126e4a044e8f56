"""Types of option values, checked before any work; a wrong value exits with code 2."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic in recent versions of click only

_SCHEME: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_LITERALS: Final = {"true": True, "false": False, "none": None, "auto": None}


class WholeNumber(ParamType):
    """A whole number in a range, or if allowed ``auto``, which becomes ``None``."""

    name = "number"

    def __init__(self, least: int, most: int = 10**9, *, auto: bool = False) -> None:
        self.least, self.most, self.auto = least, most, auto

    def convert(self, value: Any, param: Any, ctx: Any) -> int | None:
        """Return the number."""
        text = str(value).strip()
        if self.auto and text == "auto":
            return None
        if not re.fullmatch(r"[+-]?[0-9]{1,25}", text):
            self.fail(f"expected a whole number, found {text!r}", param, ctx)
        found = int(text)
        if found < self.least:
            self.fail(f"expected at least {self.least}, found {text}", param, ctx)
        if found > self.most:
            self.fail(f"expected at most {self.most}, found {text}", param, ctx)
        return found


class PositiveNumber(ParamType):
    """A finite number above 0, or if allowed ``auto``, which becomes ``None``."""

    name = "number"

    def __init__(self, *, auto: bool = False) -> None:
        self.auto = auto

    def convert(self, value: Any, param: Any, ctx: Any) -> float | None:
        """Return the number."""
        text = str(value).strip()
        if self.auto and text == "auto":
            return None
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not (math.isfinite(found) and found > 0.0):
            self.fail(f"expected a finite number above 0, found {text!r}", param, ctx)
        return found


class Temperature(ParamType):
    """A temperature ``T``, ``T:sqrt`` or ``T:N``, as ``likelihood.temperature`` describes it."""

    name = "t"

    def convert(self, value: Any, param: Any, ctx: Any) -> float | str:
        """Return the temperature: a number if constant, else the text of the schedule."""
        if value == 1.0:
            return 1.0
        from streammc.errors import ConfigError
        from streammc.likelihood.temperature import Schedule

        try:
            return Schedule.parse(value.strip() if isinstance(value, str) else value).describe()
        except ConfigError as error:
            self.fail(str(error), param, ctx)


class Share(ParamType):
    """A number strictly between 0 and 1."""

    name = "number"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return the number."""
        found = Number().convert(value, param, ctx)
        if not 0.0 < found < 1.0:
            self.fail(f"expected a number between 0 and 1, found {value}", param, ctx)
        return found


class Number(ParamType):
    """A finite number."""

    name = "number"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return the number."""
        text = str(value).strip()
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not math.isfinite(found):
            self.fail(f"expected a finite number, found {text!r}", param, ctx)
        return found


class ModelName(click.types.StringParamType):
    """The name of a model; without one the message says which models fit which response."""

    def get_missing_message(self, param: Any, ctx: Any) -> str:
        """Return what to write."""
        return (
            "Take logistic for a response of 0 and 1, poisson for counts, gaussian for numbers; "
            "streammc models lists all"
        )


class LocalPath(ParamType):
    """A path on this machine; a URL is refused without repeating its credentials."""

    name = "path"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Return the path as text."""
        text = str(value)
        scheme = _SCHEME.match(text)
        if scheme:
            self.fail(
                f"expected a path on this machine, found a URL {scheme.group(1)}://...: "
                "give a local path; only stores and runs can be at an address",
                param,
                ctx,
            )
        if not text or "\0" in text:
            self.fail(f"expected a path, found {text!r}", param, ctx)
        if len(text) > 4095:
            self.fail(f"expected a path of at most 4095 characters, found {len(text)}", param, ctx)
        return text


_FILES: Final = (".csv", ".tsv", ".parquet", ".arrow", ".feather", ".xlsx", ".json", ".html")


def refuse_file_name(path: str, what: str) -> None:
    """Refuse the name of a file for a new folder: the user means another format, or an input.

    Raises
    ------
    ConfigError
        If nothing is at the path, and its suffix is one of tables or pages.
    """
    from streammc.errors import ConfigError

    suffix = os.path.splitext(path)[1].lower()
    if suffix in _FILES and not os.path.lexists(path):
        raise ConfigError(
            f"expected the path of {what}, a folder, found {path!r}, a name of a {suffix} file: "
            "end it in .zarr, or leave the suffix out"
        )


class RowsPath(LocalPath):
    """A path on this machine whose suffix names a format of rows: zarr, CSV or Parquet."""

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Return the path as text."""
        from streammc.errors import ConfigError
        from streammc.trace.row_tables import output_format

        text = super().convert(value, param, ctx)
        try:
            output_format(text)
        except ConfigError as error:
            self.fail(str(error), param, ctx)
        return text


class StorePath(LocalPath):
    """A path or address of a store; one that may hold credentials is not repeated."""

    name = "path or address"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Return the path, or what the command works with in place of the address, as text."""
        from streammc.errors import ConfigError

        text = str(value)
        if not _SCHEME.match(text):
            return super().convert(value, param, ctx)
        try:
            return self.resolved(text)
        except ConfigError as error:
            self.fail(str(error), param, ctx)

    def resolved(self, address: str) -> str:
        """Return the address as it is, or raise ConfigError."""
        from streammc.stores.cloud.address import split_arrays, store_root

        store_root(split_arrays(address)[0])
        return address


class RunPath(StorePath):
    """A path of a run, or its address; becomes the local folder that has its newest commit."""

    def resolved(self, address: str) -> str:
        """Return the local folder of the run."""
        from streammc.trace.places import run_folder

        return str(run_folder(address))


class Names(ParamType):
    """Column names separated by commas; a name with a comma in double quotes."""

    name = "a,b,c"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        """Return the names."""
        rows = [value]
        if not isinstance(value, tuple):
            rows = list(csv.reader([str(value)], skipinitialspace=True))
        names = tuple(name.strip() for name in rows[0]) if rows else ()
        if not names or "" in names:
            self.fail(f"expected names separated by commas, found {value!r}", param, ctx)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            self.fail(f"expected each name once, found {twice[0]!r} again", param, ctx)
        return names


class Spellings(Names):
    """Spellings of a missing value separated by commas; empty for nothing but empty values."""

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        """Return the spellings."""
        return () if value in ("", '""', (), ("",)) else super().convert(value, param, ctx)


class KeyValue(ParamType):
    """``KEY=VALUE``: true, false, none, a number, a list ``[1, 2]``, or text."""

    name = "key=value"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, Any]:
        """Return the key, with underscores for dashes, and the value."""
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            self.fail(f"expected KEY=VALUE, found {value!r}", param, ctx)
        return key, _literal(text.strip())


class NamedPrior(ParamType):
    """``NAME=PRIOR``, or ``PRIOR`` for all coefficients; ``;`` separates several in a variable."""

    name = "[name=]prior"
    envvar_list_splitter = ";"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, str]:
        """Return the name, ``*`` for all coefficients, and the text of the prior."""
        if isinstance(value, tuple):
            return value
        from streammc.errors import ConfigError
        from streammc.priors import parse_item

        try:
            return parse_item(str(value))
        except ConfigError as error:
            self.fail(str(error), param, ctx)


class FormulaText(ParamType):
    """A formula; ``;`` separates several in a variable."""

    name = "text"
    envvar_list_splitter = ";"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Return the text; it is read with the other formulas."""
        return str(value)


class Limits(ParamType):
    """Limits such as ``rhat=1.01,ess=400`` that a run must satisfy."""

    name = "limits"
    known = ("rhat", "ess")

    def convert(self, value: Any, param: Any, ctx: Any) -> dict[str, float]:
        """Return the limits by name."""
        if isinstance(value, dict):
            return value
        limits: dict[str, float] = {}
        for part in str(value).split(","):
            key, _, text = part.partition("=")
            key = key.strip()
            if key not in self.known:
                known = ", ".join(f"{name}=..." for name in self.known)
                self.fail(f"expected {known}, found {part!r}", param, ctx)
            if key in limits:
                self.fail(f"expected {key} once, found it again", param, ctx)
            found = PositiveNumber().convert(text, param, ctx)
            assert found is not None
            limits[key] = found
        return limits


class StoppingRule(ParamType):
    """A stopping rule such as ``ess=1000,rhat=1.01,time=2h,draws=50000``."""

    name = "rule"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the ``StopRule``."""
        from streammc.diagnostics.stopping import StopRule
        from streammc.errors import ConfigError

        try:
            return StopRule.parse(value)
        except ConfigError as error:
            self.fail(str(error), param, ctx)


def _literal(text: str) -> Any:
    if text.lower() in _LITERALS:
        return _LITERALS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if text.startswith("["):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


KINDS: Final[dict[str, ParamType]] = {
    "category": WholeNumber(0),
    "formulas": FormulaText(),
    "limits": Limits(),
    "model": ModelName(),
    "names": Names(),
    "number": Number(),
    "option": KeyValue(),
    "path": LocalPath(),
    "prior": NamedPrior(),
    "rows": RowsPath(),
    "run": RunPath(),
    "spellings": Spellings(),
    "stop": StoppingRule(),
    "store": StorePath(),
    "temperature": Temperature(),
    "text": click.STRING,
}
"""Types of values by the ``kind`` of a setting."""
