"""Tokens of a formula; characters and words outside the allow-list are refused.

No attributes, braces, backslashes, keywords or names with two leading underscores.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from typing import Final, NamedTuple

from streammc.errors import ConfigError

MAX_LENGTH: Final = 10_000
MAX_DEPTH: Final = 20
TREATMENT: Final = "contr.treatment"

_TOKEN: Final = re.compile(
    r"""
    (?P<space>[ \t\r\n]+)
    |(?P<column>`[^`\\\x00-\x1f\x7f]+`)
    |(?P<string>'[^'"\\`\x00-\x1f\x7f]*'|"[^'"\\`\x00-\x1f\x7f]*")
    |(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<name>contr\.treatment(?=\s*\()|[^\W\d]\w*)
    |(?P<operator>\*\*|<=|>=|==|!=|\|\|?|[-+*/:^~(),=<>\[\]])
    """,
    re.VERBOSE,
)
_PREFIXED_CALL: Final = re.compile(r"\.([A-Za-z_]\w*)\s*\(([^()]{0,60})(\)?)")
_ADVICE: Final = {
    ".": "write the columns out; a name with a dot goes into backquotes, `a.b`",
    "{": "write a calculation as I(...)",
    "%": "write interactions with ':' and '*'",
    '"': "a string has no quotes or backslashes in it",
    "'": "a string has no quotes or backslashes in it",
    "`": "a name in backquotes has no backquote, backslash or control character",
}


class Token(NamedTuple):
    """A token of a formula."""

    kind: str
    text: str
    position: int
    """Number of its first character, counted from 1."""


def tokenize(text: object) -> list[Token]:
    """Cut a formula into tokens.

    Raises
    ------
    ConfigError
        If ``text`` is not a string, too long or nested too deep, or a character is not allowed.
    """
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        found = f"{len(text)} characters" if isinstance(text, str) else type(text).__name__
        raise ConfigError(
            f"expected a formula as text up to {MAX_LENGTH} characters, found {found}"
            ": write a shorter text"
        )
    tokens: list[Token] = []
    position = depth = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            char = text[position]
            advice = _ADVICE.get(char, "leave it out, or quote a column name with backquotes")
            called = _PREFIXED_CALL.match(text, position)
            if called and tokens and tokens[-1].kind == "name":
                function, argument, closed = called.groups()
                argument = argument.strip() if closed else "..."
                advice = f"functions have no prefix; write {function}({argument})"
            raise refused(repr(char), position + 1, advice)
        kind, word = str(match.lastgroup), match.group()
        if kind == "name":
            _check_name(word, position + 1)
        if kind != "space":
            tokens.append(Token(kind, word, position + 1))
        depth += (word in "([") - (word in ")]") if kind == "operator" else 0
        if not 0 <= depth <= MAX_DEPTH:
            advice = f"close what is open, at most {MAX_DEPTH} deep"
            raise refused(repr(word), position + 1, advice)
        position = match.end()
    if depth:
        raise ConfigError(
            "expected every parenthesis of the formula closed, found one open"
            ": close it, or remove it"
        )
    return tokens


def refused(found: str, position: int, advice: str) -> ConfigError:
    """Return the error for text that a formula may not contain."""
    return ConfigError(
        f"expected columns, numbers, operators and known functions in the formula, found {found} "
        f"at character {position}: {advice}"
    )


def _check_name(word: str, position: int) -> None:
    if unicodedata.normalize("NFKC", word) != word:
        raise refused(repr(word), position, "put a column of this name into backquotes")
    if word.startswith("__") or (keyword.iskeyword(word) and word not in ("True", "False")):
        raise refused(repr(word), position, "put a column of this name into backquotes")
