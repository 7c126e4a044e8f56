"""Priors from text and from their JSON descriptions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from streammc.docstrings import documented
from streammc.errors import ConfigError
from streammc.priors import families
from streammc.priors.by_name import BY_NAME, RULE, SCALED, NamedPriors, ScaledPriors
from streammc.priors.densities import FAMILIES, Family, JointNormal
from streammc.priors.families import NO_DEFAULTS, Defaults, FamilyPrior, expand, grouped
from streammc.protocols import Prior

_BUILDERS: Final = {name: getattr(families, name) for name in FAMILIES}
_CALL: Final = re.compile(r"([A-Za-z][A-Za-z_-]*)\s*(?:\(([^()]*)\))?")
_ITEM: Final = re.compile(rf"(?:(.*)=)?\s*({_CALL.pattern})\s*", re.DOTALL)
_LONGEST: Final = 10_000
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


@documented()
def parse(text: str) -> FamilyPrior:
    """Return the prior that a text such as ``normal(0, 1)`` describes.

    The numbers stand in the order of the family (location before scale) or are named,
    ``normal(scale=2)``. Those without a name must be all of them. A hyphen is as good as
    an underscore.

    Parameters
    ----------
    text
        A family with its numbers: ``normal(0, 1)``, ``half_normal(scale=2)`` or ``flat``.

    Raises
    ------
    ConfigError
        If the text is not a family with its numbers.

    Examples
    --------
    >>> from streammc.priors import parse
    >>> parse("student_t(3, 0, 2.5)").describe()
    {'family': 'student_t', 'df': 3.0, 'location': 0.0, 'scale': 2.5}
    """
    shown = " ".join(str(text).split())[:60]
    match = _CALL.fullmatch(str(text).strip())
    if match is None:
        raise ConfigError(
            f"expected a prior such as normal(0, 1), found {shown!r}: write one of streammc.priors"
        )
    name = match.group(1).lower().replace("-", "_")
    if name not in FAMILIES:
        near = get_close_matches(name, FAMILIES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(FAMILIES)}"
        raise ConfigError(f"unknown prior {match.group(1)!r} in {shown!r}: {hint}")
    family = FAMILIES[name]
    usage = f"{name}({', '.join(family.parameters)})"
    inner = (match.group(2) or "").strip()
    values: dict[str, float] = {}
    plain: list[str] = []
    for part in inner.split(",") if inner else ():
        key, equals, number = (piece.strip() for piece in part.partition("="))
        if not equals:
            key, number = "", key
        if not _NUMBER.fullmatch(number):
            raise ConfigError(
                f"expected numbers in {usage}, found {number!r} in {shown!r}: write numbers"
            )
        if not equals:
            if values or len(plain) == len(family.parameters):
                raise ConfigError(f"expected {usage}, found {shown!r}: name the numbers")
            plain.append(number)
            continue
        if key not in family.parameters or key in values:
            fault = "twice" if key in values else f"no number of {usage}"
            raise ConfigError(
                f"expected {usage}, found {key!r} in {shown!r}, {fault}: give each number once"
            )
        values[key] = float(number)
    too_few = values or len(plain) < len(family.parameters)
    missing = {*family.parameters} - {*values, "location"}
    if too_few if plain else missing:  # a scale that is not written would be 10
        raise ConfigError(f"expected {usage}, found {shown!r}: give all its numbers, or name them")
    values.update(zip(family.parameters, map(float, plain), strict=False))
    return _build(family, values, f"expected {usage}, found {shown!r}")


@documented()
def parse_item(text: str) -> tuple[str, str]:
    """Split ``NAME=PRIOR`` into both; a text without a name is for ``"*"``.

    The name may hold any character; the prior is what :func:`parse` accepts.

    Parameters
    ----------
    text
        Such as ``beta[age]=normal(0, 1)``.

    Raises
    ------
    ConfigError
        If there is no prior at the end, or the name is empty.
    """
    short = isinstance(text, str) and len(text) <= _LONGEST
    match = _ITEM.fullmatch(text) if short else None
    if match is None:
        shown = " ".join(str(text).split())[:60]
        raise ConfigError(
            f"expected NAME=PRIOR or PRIOR, such as beta[age]=normal(0, 1), found {shown!r}"
            ": write it that way"
        )
    name = match.group(1)
    if name is not None and not name.strip():
        raise ConfigError(f"expected a name before = in {text!r}: write *={match.group(2)}")
    parse(match.group(2))
    return ("*" if name is None else name.strip()), match.group(2)


@documented()
def from_description(description: Mapping[str, Any]) -> Prior:
    """Return the prior whose ``describe()`` this is.

    Parameters
    ----------
    description
        JSON types, as a run keeps them.

    Raises
    ------
    ConfigError
        If it describes no prior of this package.
    """
    if not isinstance(description, Mapping):
        raise ConfigError(
            f"expected the description of a prior, found {type(description).__name__}: "
            "give what describe() of a prior returned"
        )
    settings = dict(description)
    name = settings.pop("family", None)
    if name in (BY_NAME, SCALED) and isinstance(settings.get("priors"), Mapping):
        return _by_name(name, settings)
    if name not in FAMILIES:
        raise ConfigError(
            f"expected the description of a prior, found the family {name!r}"
            ": give what describe() of a prior returned"
        )
    return _build(FAMILIES[name], settings, f"expected the settings of {name}, found {settings!r}")


def prior_texts(
    prior: Prior,
    labels: Sequence[str],
    positive: Sequence[int],
    defaults: Defaults = NO_DEFAULTS,
) -> dict[str, str]:
    """Return the prior of every label as text that :func:`parse` reads, with its numbers.

    Labels beyond those of ``positive``, and all of a prior that is not of this package, are
    left out.

    Examples
    --------
    >>> from streammc.priors import normal
    >>> prior_texts(normal(2.5), ["beta[x]", "sigma"], [False, True])
    {'beta[x]': 'normal(0, 2.5)', 'sigma': 'half_student_t(3, 10)'}
    """
    named = labels[: len(positive)]
    each: list[FamilyPrior | None]
    if isinstance(prior, NamedPriors):
        each = prior.each(named, positive)
    elif isinstance(prior, FamilyPrior):
        each = [None if flag else prior for flag in positive]
    else:
        return {}
    texts: dict[str, str] = {}
    for one, at in grouped(named, positive, each, defaults):
        family, own = one.family, [labels[j] for j in at]
        rest = family.rest
        settings = dict(one.settings)
        values = [
            expand(f"prior {name}", settings[name], own, rest.get(name))
            for name in family.parameters
        ]
        for k, label in enumerate(own):
            numbers = ", ".join(f"{value[k]:.15g}" for value in values)
            texts[label] = f"{family.name}({numbers})"
    return {label: texts[label] for label in named}


def _by_name(name: str, settings: Mapping[str, Any]) -> Prior:
    """Return priors by name from their description."""
    priors, scaled, rule = [], settings.get("scaled", []), settings.get("joint_rule")
    for key, each in sorted(settings["priors"].items()):
        prior = from_description(each)
        if not isinstance(prior, FamilyPrior):
            raise ConfigError(
                f"expected one prior of {key!r}, found the description {each!r}"
                ": give the description of one family"
            )
        priors.append((key, prior))
    if not isinstance(scaled, list) or not all(isinstance(label, str) for label in scaled):
        raise ConfigError(
            f"expected the labels of scaled priors, found {scaled!r}: give a list of names"
        )
    if name == SCALED:
        return ScaledPriors(tuple(priors))
    if rule is None:
        return NamedPriors(tuple(priors), tuple(scaled))
    if rule != RULE:
        raise ConfigError(
            f"expected joint default priors by rule {RULE}, found rule {rule!r}: use the version "
            "of streammc that began the run"
        )
    return NamedPriors(tuple(priors), tuple(scaled), (JointNormal.of_a_run(),))


def _build(family: Family, settings: Mapping[str, Any], fault: str) -> FamilyPrior:
    try:
        built: FamilyPrior = _BUILDERS[family.name](**settings)
    except TypeError:
        raise ConfigError(f"{fault}: give its numbers by name") from None
    except ConfigError as error:
        raise ConfigError(f"{fault}: {error}") from None
    return built
