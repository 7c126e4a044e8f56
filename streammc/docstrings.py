"""Docstrings completed from signatures, with entries of shared parameters from one source.

A docstring describes the meaning of each parameter under ``Parameters``. Type and default are
in the signature, and :func:`documented` writes them into the docstring when the module is
imported. A parameter of several functions is described once: the other functions name the
function, or text, that describes it.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeVar, get_overloads

F = TypeVar("F", bound=Callable[..., Any])

PARAMETERS: Final = "Parameters"
RAISES: Final = "Raises"
_SECTION: Final = re.compile(r"^(\w+)\n-{3,}$\n?", re.M)
_ENTRY: Final = re.compile(
    r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : (.*))?$\n((?:(?:[ ].*)?(?:\n|\Z))*)", re.M
)
_LITERAL: Final = re.compile(r"Literal\[(.*?)\]")
_ALIASES: Final = {
    "PriorOption": "Prior | Mapping[str, Prior]",
    "Option": "float | Sequence[float] | Mapping[str, float]",
    "FamilyPrior": "Prior",
    "Function": "Callable",
    "Matrix": "NDArray[float64]",
    "Vector": "NDArray[float64]",
}
"""Internal type names, and the text that replaces them in docstrings."""
_WRITTEN: Final[dict[Callable[..., Any], str | None]] = {}
"""Docstrings as written in the source, for functions that refer to them."""


def documented(*sources: Callable[..., Any] | str) -> Callable[[F], F]:
    """Return a decorator that completes the docstring of a function from its signature.

    Parameters
    ----------
    *sources
        Functions, classes with their bases, or docstrings, that describe parameters missing in
        the docstring of the function itself. A docstring may also have the ``Raises`` of functions
        without one.

    Returns
    -------
    Callable
        The decorator. A function with overloads gets the signature of the first overload.
    """

    def complete(target: F) -> F:
        overloads = get_overloads(target)
        if overloads:
            target.__signature__ = inspect.signature(overloads[0])  # type: ignore[attr-defined]
        _WRITTEN.setdefault(target, target.__doc__)
        docs = [text for each in (target, *sources) for text in docs_of(each)]
        shared = (sections(each).get(RAISES, "") for each in sources if isinstance(each, str))
        target.__doc__ = completed(inspect.signature(target), docs, next(shared, ""))
        return target

    return complete


def docs_of(source: Callable[..., Any] | str) -> list[str | None]:
    """Return docstrings as written: of a function, or of a class and its bases."""
    if isinstance(source, str):
        return [source]
    if isinstance(source, type):
        return [vars(base).get("__doc__") for base in source.__mro__[:-1]]
    return [_WRITTEN.get(source, source.__doc__)]


def completed(
    signature: inspect.Signature, docs: Sequence[str | None], raises: str = ""
) -> str | None:
    """Return the first docstring, with an entry for every parameter described in any of them.

    Parameters
    ----------
    signature
        Order, types and defaults of the parameters.
    docs
        Docstrings; the first that describes a parameter takes precedence. If the first is
        ``None``, as under ``python -OO``, the result is ``None``.
    raises
        Text of a section ``Raises``, for a docstring without one.
    """
    if not docs[0]:
        return None
    known = [sections(doc) for doc in docs if doc]
    described: dict[str, tuple[str, str]] = {}
    for each in reversed(known):
        described |= entries(each.get(PARAMETERS, ""))
    found = known[0]
    text = "\n".join(
        f"{', '.join(name for name, _, _ in group)}{typed}\n{meaning}"
        for (typed, meaning), group in groupby(
            [
                (str(each.replace(annotation=each.empty, default=each.empty)),
                 _typed(each, described[name][0]), described[name][1])
                for name, each in signature.parameters.items()
                if name in described
            ],
            key=itemgetter(1, 2),
        )
    )  # fmt: skip
    head = found.pop("")
    found.pop(PARAMETERS, None)
    found = {"": head, PARAMETERS: text} | ({RAISES: raises} if RAISES not in found else {}) | found
    return "\n\n".join(
        f"{title}\n{'-' * len(title)}\n{body}" if title else body
        for title, body in found.items()
        if body
    )


def sections(doc: str) -> dict[str, str]:
    """Return the sections of a numpydoc text by title; the text before the first under ``""``."""
    parts = _SECTION.split(inspect.cleandoc(doc))
    return dict(zip(["", *parts[1::2]], (part.strip("\n") for part in parts[::2]), strict=True))


def entries(section: str) -> dict[str, tuple[str, str]]:
    """Return type and meaning of every parameter of a section; the type is ``""`` if missing."""
    return {
        name.lstrip("*"): (kind, textwrap.indent(textwrap.dedent(text).strip("\n"), "    "))
        for names, kind, text in _ENTRY.findall(section)
        for name in names.split(", ")
    }


def _typed(parameter: inspect.Parameter, kind: str) -> str:
    """Return `` : type, default value`` of a parameter; a type in the docstring is kept."""
    if not kind and parameter.annotation is not parameter.empty:
        kind = str(parameter.annotation)
        for alias, meaning in _ALIASES.items():
            kind = re.sub(rf"\b{alias}\b", meaning, kind)
        kind = _LITERAL.sub(r"{\1}", kind)
    default = [] if parameter.default is parameter.empty else [f"default {parameter.default!r}"]
    text = ", ".join([kind] * bool(kind) + default)
    return f" : {text}" if text else ""
