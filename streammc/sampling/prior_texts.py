"""Priors as a run records them and as they are printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from streammc.priors.text import prior_texts
from streammc.protocols import Model

_SHOWN: Final = 4
_FIX: Final = "fix them with --prior or --prior-scale"


def describe_priors(model: Model, labels: tuple[str, ...]) -> dict[str, Any]:
    """Return the prior of every parameter as text, and which ones were scaled with the data.

    Parameters
    ----------
    model
        A model whose prior has its numbers.
    labels
        Names of its parameters.

    Returns
    -------
    dict
        ``parameters``, label -> text that ``priors.parse`` reads; ``scaled_with_data``,
        labels. Weights of a mixture have a Dirichlet prior, which is an option of the model.
    """
    flags = getattr(model, "positive_flags", None)
    own = getattr(model, "fixed_defaults", None)
    texts = {} if flags is None else prior_texts(model.prior, labels, flags(labels), own)
    return {"parameters": texts, "scaled_with_data": list(getattr(model.prior, "scaled", ()))}


def default_priors_text(described: Mapping[str, Any]) -> str | None:
    """Return one line about the default priors that were scaled; ``None`` where none was."""
    texts, scaled = described["parameters"], set(described["scaled_with_data"])
    shown = [f"{label} {text}" for label, text in texts.items() if label in scaled]
    if not shown:
        return None
    if len(shown) > _SHOWN + 1:  # the last is that of a scale, where there is one
        middle = f"{len(shown) - _SHOWN} more"
        shown = [*shown[: _SHOWN - 1], middle, shown[-1]]
    return f"default priors, scaled with the data: {', '.join(shown)}; {_FIX}"
