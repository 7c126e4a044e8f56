"""Models and samplers from the options of the command line, or from a run's identity."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from streammc import registry
from streammc.errors import ConfigError, StoreError


def make_model(
    name: str,
    prior_scale: float,
    options: Mapping[str, Any] | None = None,
    priors: Sequence[tuple[str, str]] = (),
) -> Any:
    """Return the model ``name`` with the priors of ``--prior`` and ``--prior-scale``."""
    prior = make_prior(prior_scale, priors)
    return registry.model(name)(prior=prior, **dict(options or {}))


def make_prior(scale: float, items: Sequence[tuple[str, str]]) -> Any:
    """Return the prior of ``--prior`` pairs; Normal(0, scale) where they name nothing.

    Parameters
    ----------
    scale
        That of ``--prior-scale``.
    items
        Names or patterns with the text of a prior; the name ``*`` is for all other
        coefficients.

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
    rest = priors.setdefault("*", normal(scale=scale))
    return rest if len(priors) == 1 else as_prior(priors)


def model_options(name: str) -> set[str]:
    """Return the options of a model other than its prior."""
    return set(inspect.signature(registry.model(name)).parameters) - {"prior"}


def split_options(
    model: str, pairs: Sequence[tuple[str, Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the ``--option`` pairs of the model and those of the sampler.

    Raises
    ------
    ConfigError
        If a key comes twice.
    """
    own = model_options(model)
    of_model: dict[str, Any] = {}
    of_sampler: dict[str, Any] = {}
    for key, value in pairs:
        place = of_model if key in own else of_sampler
        if key in place:
            raise ConfigError(f"expected --option {key} once, found it again: keep one")
        place[key] = value
    return of_model, of_sampler


def make_sampler(name: str, flags: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Return a sampler, or ``None`` for ``auto`` without options.

    Parameters
    ----------
    name
        A registered name, or ``auto``. Options decide for ``hmc-ecs``, whose they are.
    flags
        Options with a flag of their own; ``None`` where not given.
    options
        Those of ``--option``.

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
    if name == "auto":
        if not chosen:
            return None
        name = "hmc-ecs"
    return registry.sampler(name)(**chosen)


def model_of_run(identity: Mapping[str, Any]) -> Any:
    """Rebuild the model of a run from its identity.

    Raises
    ------
    StoreError
        If the run does not describe a model that can be named.
    """
    from streammc.priors import from_description

    try:
        described = dict(identity["model"])
        built = from_description(described.pop("prior"))
        return registry.model(described.pop("name"))(prior=built, **described)
    except (KeyError, TypeError, AttributeError, ConfigError) as error:
        raise StoreError(
            f"expected a run of a registered model, found {identity.get('model')!r} ({error}): "
            "continue it from Python, with the model"
        ) from None


def sampler_of_run(identity: Mapping[str, Any]) -> Any:
    """Rebuild the sampler that was asked for; ``None`` for ``auto``."""
    options = dict(identity["sampler"])
    name = options.pop("name")
    return None if name == "auto" else registry.sampler(name)(**options)
