"""Models and samplers built from command-line options, or from the identity of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streammc import registry
from streammc.cli.output import Output
from streammc.cli.own_code import add_current_folder
from streammc.errors import ConfigError, IdentityError


def find_model(name: str, allow_code: bool = False) -> Callable[..., Any]:
    """Return the builder of a registered model, or of ``package.module:build``.

    Raises
    ------
    ConfigError
        If the name is unknown, or the user's own code without ``allow_code``.
    """
    if ":" not in name:
        return registry.model(name)
    if not allow_code:
        raise ConfigError(
            f"expected --allow-code, since the model {name!r} runs code of its own: add it"
        )
    add_current_folder()
    return registry.model_at(name)


NODES = "nodes"
"""Option of a model on a store with groups: quadrature nodes per effect."""


def make_model(
    name: str,
    prior_scale: float | None,
    options: Mapping[str, Any] | None = None,
    priors: Sequence[tuple[str, str]] = (),
    allow_code: bool = False,
) -> Any:
    """Return the model ``name`` with the priors of ``--prior`` and ``--prior-scale``.

    Parameters without such a prior get the defaults of the model, which scale with the data.
    """
    prior = make_prior(prior_scale, priors)
    given = {key: value for key, value in (options or {}).items() if key != NODES}
    unknown = [key for key in given if key not in model_options(name, allow_code)]
    if unknown:
        raise ConfigError(
            f"the model {name!r} has no option {unknown[0]!r}"
            ": choose from those of `streammc models`"
        )
    return find_model(name, allow_code)(prior=prior, **given)


def make_prior(scale: float | None, items: Sequence[tuple[str, str]]) -> Any:
    """Return the prior of ``--prior`` pairs and ``--prior-scale``; ``None`` without them.

    Parameters
    ----------
    scale
        Value of ``--prior-scale``, for the coefficients that ``items`` leaves; ``None``: they
        get the model's defaults.
    items
        Pairs of a name or pattern and the text of a prior; the name ``*`` stands for all other
        coefficients, and wins over ``scale``.

    Raises
    ------
    ConfigError
        If a name comes twice.
    """
    from streammc.priors import as_prior, normal, parse

    priors: dict[str, Any] = {}
    for key, text in items:
        if key in priors:
            raise ConfigError(f"expected --prior for {key!r} once, found it again: keep one")
        priors[key] = parse(text)
    if scale is None and "*" not in priors:
        return priors or None
    rest = priors["*"] if scale is None else priors.setdefault("*", normal(scale))
    return rest if len(priors) == 1 else as_prior(priors)


def model_options(name: str, allow_code: bool = False) -> set[str]:
    """Return the options of a model other than its prior."""
    return set(inspect.signature(find_model(name, allow_code)).parameters) - {"prior"}


def split_options(
    model: str, pairs: Sequence[tuple[str, Any]], allow_code: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the ``--option`` pairs into options of the model and options of the sampler.

    Raises
    ------
    ConfigError
        If a key comes twice.
    """
    own = model_options(model, allow_code)
    of_model: dict[str, Any] = {}
    of_sampler: dict[str, Any] = {}
    for key, value in pairs:
        place = of_model if key in own or key == NODES else of_sampler
        if key in place:
            raise ConfigError(f"expected --option {key} once, found it again: keep one")
        place[key] = value
    return of_model, of_sampler


def make_sampler(
    name: str, flags: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Return a sampler and no options, or for ``auto`` ``None`` and those of the one to be taken.

    Parameters
    ----------
    name
        A registered name, or ``auto``.
    flags
        Options with a command-line flag each; ``None`` if not given.
    options
        Options given by ``--option``.

    Raises
    ------
    ConfigError
        If an option does not exist, comes twice or is out of range.
    """
    chosen = {key: value for key, value in flags.items() if value is not None}
    for key, value in options.items():
        if key in chosen:
            flag = "--" + key.replace("_", "-")
            raise ConfigError(f"expected {key} once, found {flag} and --option {key}: keep one")
        chosen[key] = value
    if name != "auto":
        return registry.sampler(name)(**chosen), {}
    if chosen:
        from streammc.runs.setup import check_automatic

        check_automatic(chosen)
    return None, chosen


def model_of_run(
    identity: Mapping[str, Any], settings: Mapping[str, Any] | None, allow_code: bool = False
) -> Any:
    """Rebuild the model of a run from its identity, or from the user's code that it used.

    Parameters
    ----------
    identity
        Identity of the run.
    settings
        Settings of its command, which name the user's code; ``None`` if none were recorded.

    Raises
    ------
    StoreError
        If the run does not name a registered model.
    ConfigError
        If its model is the user's own code, and ``allow_code`` is false.
    IdentityError
        If that code has changed since the run began.
    """
    from streammc.control_variates.bound import as_recorded
    from streammc.runs.record import registered_model

    address = str((settings or {}).get("model"))
    if settings is not None and ":" in address:
        options, _ = split_options(address, list(settings["option"].items()), allow_code)
        priors = list(settings["prior"].items())
        model = make_model(address, settings["prior_scale"], options, priors, allow_code)
        model = as_recorded(model, identity["model"])
        if model.describe() != identity["model"]:
            raise IdentityError(
                f"expected the model {address!r} as it was when the run began, found other code or "
                "options: begin another run"
            )
        return model
    return registered_model(identity["model"])


def sampler_of_run(identity: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Rebuild the sampler of a run from its identity; see :func:`make_sampler`."""
    options = dict(identity["sampler"])
    return make_sampler(options.pop("name"), {}, options)


def announced_priors(output: Output, model: Any, dataset: Any) -> Any:
    """Return the model with default priors scaled to its units; print notes of all priors.

    A note says so if a mixed model needs more quadrature nodes than the default.
    """
    from streammc.cli.report import priors_lines
    from streammc.control_variates.bound import with_data
    from streammc.priors import ScaledPriors
    from streammc.runs.record import describe_priors

    default, model = model.nodes, with_data(model, dataset)
    if (nodes := model.nodes) != default:
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
