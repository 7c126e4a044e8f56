"""The notes of the command line about priors."""

from __future__ import annotations

from typing import Any

from streammc.cli.output import Output


def announced_priors(output: Output, model: Any, dataset: Any) -> Any:
    """Return the model with default priors resolved for the data; print notes of all priors.

    A note says so if a mixed model needs more quadrature nodes than the default.
    """
    from streammc.control_variates.default_priors import resolved
    from streammc.priors import ScaledPriors
    from streammc.runs.prior_texts import describe_priors, priors_lines

    default, model = getattr(model, "nodes", None), resolved(model, dataset)
    if (nodes := getattr(model, "nodes", None)) != default:
        output.note(
            f"quadrature over the effects of {model.column}: {nodes} nodes, since the error of "
            f"{default} varies over the posterior; fix them with --option nodes={nodes}",
            nodes=nodes,
        )
    if isinstance(model.prior, ScaledPriors):  # the full pass reports the bad data
        return model
    described = describe_priors(model, tuple(model.labels(dataset.feature_names)))
    for line in priors_lines(described):
        output.note(line, priors=described["parameters"])
    return model
