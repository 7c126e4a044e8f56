"""Texts of priors, as recorded in a run and as printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from streammc.errors import ConfigError
from streammc.protocols import Model, Prior

_SHOWN: Final = 4
_FIX: Final = "fix them with --prior or --prior-scale"


def describe_priors(model: Model, labels: tuple[str, ...]) -> dict[str, Any]:
    """Return the prior of every parameter as text, and which ones were scaled with the data.

    Parameters
    ----------
    model
        A model whose default priors have their scales.
    labels
        Names of the parameters.

    Returns
    -------
    dict
        ``parameters``, label -> text that ``priors.parse`` reads, of jointly normal parameters
        that of each alone; ``scaled_with_data``, labels; ``jointly_normal``, labels. Weights of a
        mixture have a Dirichlet prior, which is an option of the model.
    """
    joint = [label for each in getattr(model.prior, "joint", ()) for label in each.labels]
    return {
        "parameters": _texts(model, model.prior, labels),
        "scaled_with_data": list(getattr(model.prior, "scaled", ())),
        "jointly_normal": joint,
    }


def texts_of_description(model: Model, labels: tuple[str, ...]) -> Callable[[Any], dict[str, str]]:
    """Return the function: description of a prior -> texts by parameter of ``model``.

    It returns no texts if the description does not fit the parameters of the model.
    """
    from streammc.priors.text import from_description

    def texts(description: Any) -> dict[str, str]:
        try:
            return _texts(model, from_description(description), labels)
        except ConfigError:
            return {}

    return texts


def _texts(model: Model, prior: Prior, labels: tuple[str, ...]) -> dict[str, str]:
    """Return the text of every prior by name; none where the model states no parameters."""
    # Not for the lines of a finished run: the models import numba.
    from streammc.models.base import FactorModel, StatedModel
    from streammc.priors.text import prior_texts

    if not isinstance(model, StatedModel):
        return {}
    flags, defaults = model.positive_flags(labels), model.fixed_defaults(labels)
    if isinstance(model, FactorModel):  # the scale of a factor is the prior of its effects
        at = [j for j in model.without_effects(labels) if j < len(flags)]
        labels, flags = tuple(labels[j] for j in at), [flags[j] for j in at]
    return prior_texts(prior, labels, flags, defaults)


def priors_lines(described: Mapping[str, Any]) -> list[str]:
    """Return one line of the fixed priors and one of the default priors scaled with the data.

    A line without priors is left out.
    """
    scaled = set(described["scaled_with_data"])
    fixed = _shown(described, lambda label: label not in scaled)
    defaults = _shown(described, lambda label: label in scaled)
    lines = [f"priors: {fixed}"] if fixed else []
    if defaults:
        joint = ", jointly normal" if described.get("jointly_normal") else ""
        lines.append(f"default priors, scaled with the data{joint}: {defaults}; {_FIX}")
    return lines


def _shown(described: Mapping[str, Any], wanted: Callable[[str], bool]) -> str:
    """Return the first three priors and the last, often that of a scale, as text."""
    shown = [f"{label} {text}" for label, text in described["parameters"].items() if wanted(label)]
    if len(shown) > _SHOWN + 1:
        shown = [*shown[: _SHOWN - 1], f"{len(shown) - _SHOWN} more", shown[-1]]
    return ", ".join(shown)
