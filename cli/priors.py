"""What the command line says about default priors."""

from __future__ import annotations

from typing import Any

from streammc.cli.output import Output


def announced_priors(output: Output, model: Any, dataset: Any) -> Any:
    """Return the model with the numbers of its default priors, after a note with them."""
    from streammc.control_variates.default_priors import resolved
    from streammc.priors import ScaledPriors
    from streammc.sampling.prior_texts import default_priors_text, describe_priors

    model = resolved(model, dataset)
    if isinstance(model.prior, ScaledPriors):  # the full pass says what is wrong with the data
        return model
    described = describe_priors(model, tuple(model.labels(dataset.feature_names)))
    text = default_priors_text(described)
    if text is not None:
        output.note(text, priors=described["parameters"])
    return model
