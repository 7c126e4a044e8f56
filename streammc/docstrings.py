"""Help texts whose types and defaults come from the signature, and shared meanings from one place.

A docstring says under ``Parameters`` what each parameter means. Its type and its default stand
in the signature, and :func:`documented` writes them into the docstring when the module is
imported. A parameter that several functions take is described once: the others get the entry
from the function that they name.
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
"""Names of types that say nothing to a user, and what they stand for."""
_WRITTEN: Final[dict[Callable[..., Any], str | None]] = {}
"""Docstrings as they stand in the source, for functions that refer to them."""


def documented(*sources: Callable[..., Any] | str) -> Callable[[F], F]:
    """Complete the docstring of a function from its signature.

    Parameters
    ----------
    *sources
        Functions, or docstrings, that describe the parameters which the function itself does
        not.

    Returns
    -------
    Callable
        A decorator. A function with overloads shows the signature of the first.
    """

    def complete(target: F) -> F:
        overloads = get_overloads(target)
        if overloads:
            target.__signature__ = inspect.signature(overloads[0])  # type: ignore[attr-defined]
        _WRITTEN.setdefault(target, target.__doc__)
        docs = [
            each if isinstance(each, str) else _WRITTEN.get(each, each.__doc__)
            for each in (target, *sources)
        ]
        target.__doc__ = completed(inspect.signature(target), docs)
        return target

    return complete


def completed(
    signature: inspect.Signature, docs: Sequence[str | None], raises: str = ""
) -> str | None:
    """Return the first docstring with an entry for every parameter that one of them describes.

    Parameters
    ----------
    signature
        Order, types and defaults of the parameters.
    docs
        Docstrings; the first that describes a parameter decides. Where the first is ``None``,
        as under ``python -OO``, so is the result.
    raises
        Text of a section ``Raises``, where there is no such section.
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
    """Return the sections of a numpydoc text by title; ``""`` is what stands before the first."""
    parts = _SECTION.split(inspect.cleandoc(doc))
    return dict(zip(["", *parts[1::2]], (part.strip("\n") for part in parts[::2]), strict=True))


def entries(section: str) -> dict[str, tuple[str, str]]:
    """Return type and meaning of every parameter of a section; ``""`` is a type not given."""
    return {
        name.lstrip("*"): (kind, textwrap.indent(textwrap.dedent(text).strip("\n"), "    "))
        for names, kind, text in _ENTRY.findall(section)
        for name in names.split(", ")
    }


def _typed(parameter: inspect.Parameter, kind: str) -> str:
    """Return `` : type, default value``; a type given by hand stays."""
    if not kind and parameter.annotation is not parameter.empty:
        kind = str(parameter.annotation)
        for alias, meaning in _ALIASES.items():
            kind = re.sub(rf"\b{alias}\b", meaning, kind)
        kind = _LITERAL.sub(r"{\1}", kind)
    default = [] if parameter.default is parameter.empty else [f"default {parameter.default!r}"]
    said = ", ".join([kind] * bool(kind) + default)
    return f" : {said}" if said else ""
