"""Help and reference of every public name: its parameters, with their types and defaults."""

from __future__ import annotations

import inspect
import pydoc
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import streammc

ROOT = Path(__file__).resolve().parent.parent
MODULES = ("diagnostics", "models", "plots", "priors", "samplers", "scorer")
TYPES = {
    "priors.FamilyPrior",
    "priors.NamedPriors",
    "priors.PriorOption",
    "priors.ScaledPriors",
    "scorer.Scorer",
}
NAMES = sorted(
    {*streammc.__all__, "stores.encode_rows"}.difference(MODULES).union(
        f"{module}.{name}" for module in MODULES for name in getattr(streammc, module).__all__
    )
    - TYPES
)  # fmt: skip

HEADING = re.compile(r"(\w+(?:, \w+)*) : (\S.*)")


def public(name: str) -> Callable[..., Any]:
    found: Any = streammc
    for part in name.split("."):
        found = getattr(found, part)
    return found


def described(doc: str) -> dict[str, tuple[str, str]]:
    """Return (type and default, meaning) of the parameters of a docstring, by name."""
    lines = inspect.cleandoc(doc).splitlines()
    rules = [i for i, line in enumerate(lines) if line and set(line) == {"-"}]
    begun = [i for i in rules if lines[i - 1] == "Parameters"]
    if not begun:
        return {}
    end = min([i - 1 for i in rules if i > begun[0]], default=len(lines))
    found: dict[str, tuple[str, str]] = {}
    names: list[str] = []
    for line in lines[begun[0] + 1 : end]:
        heading = HEADING.fullmatch(line)
        if heading:
            names = heading.group(1).split(", ")
            found |= dict.fromkeys(names, (heading.group(2), ""))
        else:
            assert not line or line.startswith("    "), line
            found |= {name: (found[name][0], f"{found[name][1]} {line.strip()}") for name in names}
    return found


@pytest.mark.parametrize("name", NAMES)
def test_help_describes_every_parameter_with_its_type_and_default(name: str) -> None:
    function = public(name)
    parameters = inspect.signature(function).parameters
    entries = described(function.__doc__ or "")
    assert list(parameters) == list(entries)
    for parameter in parameters.values():
        assert parameter.kind is not parameter.VAR_KEYWORD, parameter
        assert parameter.kind is not parameter.VAR_POSITIONAL, parameter
        typed, meaning = entries[parameter.name]
        kind, _, default = typed.partition(", default ")
        assert kind, parameter
        assert len(meaning) > 5, parameter
        expected = "" if parameter.default is parameter.empty else repr(parameter.default)
        assert expected == default, parameter


def test_a_missing_parameter_would_be_seen() -> None:
    def function(first: int, second: float = 2.0) -> None:
        """Do nothing.

        Parameters
        ----------
        first : int
            Of both.
        """

    assert {"first": ("int", " Of both.")} == described(function.__doc__ or "")


UNITS = {
    "control_variates": {"memory_limit": "Bytes", "candidate_rows": "Rows"},
    "samplers.hmc": {
        "step_size": "posterior standard deviations",
        "trajectory_length": "posterior standard deviations",
        "target_acceptance": "probability",
    },
    "samplers.hmc_ecs": {
        "subsample_size": "Rows",
        "unit_rows": "Rows",
        "recalibrate": "Iterations",
    },
    "samplers.sgld": {"step_size": "posterior variances", "offset": "Iterations"},
    "samplers.sghmc": {"step_size": "posterior standard deviations"},
    "samplers.mh": {"step_size": "in units of ``covariance``", "gradient_size": "Rows"},
    "samplers.pt": {"step_size": "in units of ``covariance``"},
    "samplers.mintee": {"subset_size": "Rows", "ring_capacity": "States"},
    "priors.normal": {"scale": "on the store's scale"},
    "ingest": {"chunk_rows": "Rows"},
    "sample": {"warmup": "Iterations", "draws": "each chain"},
}


@pytest.mark.parametrize("name", UNITS)
def test_help_states_units(name: str) -> None:
    entries = described(public(name).__doc__ or "")
    for parameter, unit in UNITS[name].items():
        assert unit.lower() in entries[parameter][1].lower(), parameter


def test_options_of_some_words_accept_just_those() -> None:
    from streammc.errors import ConfigError

    seen = 0
    for name in streammc.samplers.__all__:
        build = getattr(streammc.samplers, name)
        for parameter in inspect.signature(build).parameters.values():
            words = re.match(r"Literal\[(.*)\]", str(parameter.annotation))
            if words is None:
                continue
            seen += 1
            # The shape of the Laplace approximation comes from the pass for control variates.
            with_pass = "control_variate" in inspect.signature(build).parameters
            other = {"control_variate": 0} if parameter.name == "covariance" and with_pass else {}
            for value in eval(f"[{words.group(1)}]"):  # literals of our own source
                assert value == getattr(build(**{parameter.name: value}, **other), parameter.name)
            with pytest.raises(ConfigError, match=parameter.name):
                build(**{parameter.name: "another word"})
    assert seen > 40


@pytest.mark.parametrize(
    "name", ["sample", "control_variates", "samplers.hmc_ecs", "priors.normal"]
)
def test_help_shows_the_parameters(name: str) -> None:
    text = pydoc.plain(pydoc.render_doc(public(name)))
    for parameter in inspect.signature(public(name)).parameters.values():
        assert re.search(rf"^ +(\w+, )*{parameter.name}(, \w+)* : ", text, re.M), parameter


def test_control_variates_are_called_and_inspected_as_their_function_is() -> None:
    from streammc.control_variates.certify import compute

    assert callable(streammc.control_variates)
    assert inspect.signature(compute) == inspect.signature(streammc.control_variates)
    assert compute.__doc__ == streammc.control_variates.__doc__


def test_reference_names_everything_public() -> None:
    text = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]*)`", text))))
    public_names = {*streammc.__all__}.union(
        *(getattr(streammc, module).__all__ for module in MODULES)
    )
    assert set() == public_names - named
