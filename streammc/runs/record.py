"""The record of a run beside its draws: identity, design, priors, scale, versions.

Versions of the programs that made the draws of a run, recorded with it.

Draws have the same bits under the same versions on the same kind of processor. A run that another
version, or another processor, goes on with says from which iteration on.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from streammc import registry
from streammc.errors import ConfigError, IdentityError, StoreError
from streammc.likelihood.data_views import tempered
from streammc.likelihood.temperature import Schedule
from streammc.models.base import (
    FactorModel,
    StatedModel,
    factor_blocks,
    parameter_blocks,
    predictor,
)
from streammc.models.table_scale import (
    COEFFICIENT,
    ScaleBlock,
    blocks_from_description,
    describe_blocks,
)
from streammc.priors import from_description
from streammc.priors.text import prior_texts
from streammc.protocols import Dataset, Model, Prior
from streammc.samplers.common.sampler import RunRequest, Sampler
from streammc.trace.run_directory import RunDirectory, RunView

MAX_SEED = 2**63 - 1
MAX_COUNT = 10**9
UNIT = Schedule()
HERE: Final = "here"
WORKERS: Final = "workers"
"""Values of ``RunRequest.chains_on``."""


def check_counts(request: RunRequest) -> None:
    """Raise ConfigError unless the counts and the seed are in range."""
    for name, least in (("draws", 1), ("warmup", 0), ("chains", 1), ("threads", 1)):
        value = getattr(request, name)
        if value is None and name == "threads":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(
                f"{name} must be a whole number of at least {least}, found {value!r}: give one"
            )
        if value > MAX_COUNT:
            raise ConfigError(
                f"{name} must be at most {MAX_COUNT}, found {value}: give a smaller number"
            )
    seed = request.seed
    if seed is not None and (
        isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED
    ):
        raise ConfigError(
            f"seed must be a whole number in [0, 2**63), found {seed!r}: give one, or leave it out"
        )


def check_place_of_chains(request: RunRequest) -> None:
    """Check where chains are to run, before anything is made.

    Raises
    ------
    ConfigError
        If it is no known place, or workers without a cluster or for rows in memory.
    """
    if request.chains_on == HERE:
        return
    if request.chains_on != WORKERS:
        raise ConfigError(
            f"expected chains_on to be 'here' or 'workers', found {request.chains_on!r}: choose one"
        )
    where = request.scheduler
    if where is None or where == "sync" or isinstance(where, int):
        raise ConfigError(
            f"expected a cluster for chains on workers, found the scheduler {where!r}: give "
            "--scheduler, or leave out --chains-on"
        )
    if request.dataset.groups is not None or request.dataset.crossed:
        raise ConfigError(
            "expected a model of single rows for chains on workers, found one of groups, whose "
            "rows are read in this process: leave out --chains-on"
        )
    if request.dataset.address == "memory":
        raise ConfigError(
            "expected a store on disk for chains on workers, found rows in memory: write them with "
            "streammc.ingest, or leave out chains_on"
        )


def identity(request: RunRequest) -> dict[str, Any]:
    """Return the JSON of the settings that identify the run of a directory.

    The number of draws is not included, since more draws extend a run. The temperature is
    included unless it is 1.
    """
    schedule, sampler, given = request.schedule, request.sampler, request.control_variates
    options = request.sampler_options
    heat = {} if schedule == UNIT else {"temperature": schedule.describe()}
    return {
        "store": request.dataset.fingerprint,
        "model": request.model.describe(),
        "sampler": {"name": "auto", **options} if sampler is None else sampler.describe(),
        "control_variates": given.digest() if given is not None else "auto",
        "warmup": request.warmup,
        "chains": request.chains,
        "seed": request.seed,
        **heat,
    }


def completed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity of a run, with defaults for sampler options added after it was made.

    The default of a new option must not change the behaviour, so that runs of earlier versions
    keep their identity.
    """
    try:
        options = dict(stored["sampler"])
        described = registry.sampler(options.pop("name"))(**options).describe()
    except (KeyError, TypeError, ConfigError):  # auto, or of another version
        return dict(stored)
    return {**stored, "sampler": described}


def refuse_earlier(stored: Mapping[str, Any], dataset: Dataset) -> None:
    """Raise IdentityError if a run is of the store before rows were appended."""
    table, fingerprint = dataset.table, stored.get("store")
    if fingerprint is None or fingerprint == table.fingerprint:
        return
    before = table.earlier(fingerprint)
    if before is not None:
        raise IdentityError(
            f"expected a run of all {table.n_rows:,} rows of store {table.address!r}, found one of "
            f"its first {before.n_rows:,}, before others were appended: choose another output "
            "and give that run as --start-from, or continue it with 'streammc resume'",
            "; or replace it with --overwrite (in Python overwrite=True)",
        )


def asked_schedule(temperature: Any, sampler: Sampler | None) -> Schedule:
    """Return the temperatures; raise ConfigError if they vary and the sampler cannot follow."""
    schedule = Schedule.parse(temperature)
    if schedule.constant or (sampler is not None and sampler.follows_schedule):
        return schedule
    name = "auto" if sampler is None else sampler.name
    raise ConfigError(
        f"expected a constant temperature for {name}, found {schedule.describe()!r}: use an mh "
        "sampler or a constant"
    )


def heated(dataset: Dataset, schedule: Schedule, sampler: Sampler | None) -> Dataset:
    """Return the data set at the final temperature of a run."""
    implied = 1.0 if sampler is None else sampler.implied_temperature(dataset.n_rows)
    return tempered(dataset, schedule.final * implied)


def registered_model(described: Mapping[str, Any]) -> Model:
    """Return the registered model with this description by ``Model.describe``.

    Raises
    ------
    StoreError
        If the model is not registered: it is the user's own.
    """
    try:
        if described["name"] == "mixed":
            from streammc.models.mixed import mixed_model

            mixed: Any = mixed_model.from_description(described)
            return mixed  # type: ignore[no-any-return]
        if described["name"] == "crossed":
            from streammc.models.mixed import crossed_model

            found: Any = crossed_model.from_description(described)
            return found  # type: ignore[no-any-return]
        options = dict(described)
        prior = from_description(options.pop("prior"))
        factors = factor_blocks(options.pop("factors", ()))
        censored = options.pop("censored", False)
        designs = tuple(map(tuple, options.pop("designs", ())))
        model: Any = registry.model(options.pop("name"))(prior=prior, **options)
        model = replace(model, factors=factors) if factors else model
        model = replace(model, designs=designs) if designs else model
        return replace(model, censored=True) if censored else model  # type: ignore[no-any-return]
    except (KeyError, TypeError, AttributeError, ConfigError) as error:
        raise StoreError(
            f"expected a run of a registered model, found {described!r} ({error}): continue it "
            "from Python, with the model"
        ) from None


DESIGN_KEYS: Final = (
    *("features", "intercept", "standardization", "formula", "designs"),
    *("response", "offset", "trials", "censored"),
    # How the rows were made, so that another table, or the same one again, is read alike.
    *("weight", "row_id", "dtype", "missing", "n_dropped", "shuffle_seed", "cells", "crossed"),
)


def describe_design(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a data set on which predictions depend, and how it was made."""
    return {key: attributes.get(key) for key in DESIGN_KEYS}


REFERENCES: Final = "references"
"""Attribute of a run with the reference levels of its columns; absent without any."""


def label_references(
    references: Mapping[str, Sequence[str]] | None,
    blocks: Sequence[ScaleBlock],
    features: Sequence[str],
) -> dict[str, list[str]]:
    """Return the reference levels of parameters by label, from those of the columns.

    Parameters
    ----------
    references
        Attribute ``references`` of a run.
    blocks
        Blocks of its parameters; coefficients count. Of effects there may be as many as columns.
    features
        Names of the columns.
    """
    return {
        label: list(references[name])
        for block in blocks
        if references and block.rule == COEFFICIENT
        if len(block.labels) == len(block.features(features))
        for name, label in zip(block.features(features), block.labels, strict=True)
        if name in references
    }


VERSIONS: Final = "versions"
"""Attribute of a run: a mapping for each set of versions, with its first ``iteration``."""
_ITERATION: Final = "iteration"


def versions() -> dict[str, str]:
    """Return the versions and the kind of processor that the bits of a draw depend on."""
    import llvmlite.binding  # type: ignore[import-untyped]
    import numba
    import numpy
    import scipy

    return {
        "streammc": str(import_module("streammc").__version__),
        "Python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "numba": numba.__version__,
        "processor": f"{platform.machine()} {llvmlite.binding.get_host_cpu_name()}",
    }


def record_versions(run: RunDirectory) -> None:
    """Add the versions of this process to a locked run with iterations to come, if they differ."""
    kept = recorded_versions(run.attributes)
    now = versions()
    if not run.next_length or (kept and {**kept[-1], _ITERATION: 0} == {_ITERATION: 0, **now}):
        return
    first = run.committed_warmup + run.committed_draws
    run.set_attributes({VERSIONS: [*kept, {_ITERATION: first, **now}]})


def recorded_versions(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the versions of a run in their order; none of a run of streammc 0.1.0 or earlier."""
    found = attributes.get(VERSIONS)
    return [dict(each) for each in found] if isinstance(found, list) else []


def versions_text(attributes: Mapping[str, Any]) -> str | None:
    """Return the versions of a run as text; ``None`` if it does not say them."""
    lines = []
    for each in recorded_versions(attributes):
        words = ", ".join(f"{name} {text}" for name, text in each.items() if name != _ITERATION)
        since = f"from iteration {each[_ITERATION]:,} on: " if each[_ITERATION] else ""
        lines.append(f"{since}{words}")
    return "; ".join(lines) or None


TABLE_SCALE: Final = "table_scale"


def recorded_scale(model: Model, dataset: Dataset) -> dict[str, Any]:
    """Return the attribute of a run that describes the transformation to the table's scale."""
    return {TABLE_SCALE: describe_blocks(model.table_scale(dataset.feature_names))}


def blocks_of_run(run: RunView, features: Sequence[str]) -> tuple[ScaleBlock, ...]:
    """Return the parameter blocks recorded in a run; the model is not needed.

    A run of an earlier version has no record. Then a registered model gives its blocks again,
    and of a model of the user's own only the coefficients are known.

    Raises
    ------
    StoreError
        If such an old run has a model that is neither registered nor the user's own.
    """
    if TABLE_SCALE in run.attributes:
        return blocks_from_description(run.attributes[TABLE_SCALE])
    described = run.identity["model"]
    if "code" in described:
        predictors = (predictor(name) for name in described["predictors"])
        return parameter_blocks(predictors, features)
    if described["name"] not in registry.MODELS:
        raise StoreError(
            f"expected a run that records its parameters, found an old one of the model "
            f"{described['name']!r}: sample it again"
        )
    return tuple(registered_model(described).table_scale(features))


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

    def texts(description: Any) -> dict[str, str]:
        try:
            return _texts(model, from_description(description), labels)
        except ConfigError:
            return {}

    return texts


def _texts(model: Model, prior: Prior, labels: tuple[str, ...]) -> dict[str, str]:
    """Return the text of every prior by name; none where the model states no parameters."""
    if not isinstance(model, StatedModel):
        return {}
    flags, defaults = model.support_flags(labels), model.fixed_defaults(labels)
    if isinstance(model, FactorModel):  # the scale of a factor is the prior of its effects
        at = [j for j in model.without_effects(labels) if j < len(flags)]
        labels, flags = tuple(labels[j] for j in at), [flags[j] for j in at]
    return prior_texts(prior, labels, flags, defaults)
