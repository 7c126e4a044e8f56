"""Identity of a run: the settings that must agree to resume or extend it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streammc import registry
from streammc.errors import ConfigError, IdentityError, StoreError
from streammc.likelihood.temperature import Schedule, split_fingerprint, tempered
from streammc.models.base import factor_blocks
from streammc.priors import from_description
from streammc.protocols import Dataset, Model
from streammc.samplers.common.sampler import RunRequest, Sampler

MAX_SEED = 2**63 - 1
MAX_COUNT = 10**9
UNIT = Schedule()


def check_counts(draws: int, warmup: int, chains: int, seed: int | None) -> None:
    """Raise ConfigError unless the counts and the seed are in range."""
    for name, value, least in (("draws", draws, 1), ("warmup", warmup, 0), ("chains", chains, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(
                f"{name} must be a whole number of at least {least}, found {value!r}: give one"
            )
        if value > MAX_COUNT:
            raise ConfigError(
                f"{name} must be at most {MAX_COUNT}, found {value}: give a smaller number"
            )
    if seed is not None and (
        isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED
    ):
        raise ConfigError(
            f"seed must be a whole number in [0, 2**63), found {seed!r}: give one, or leave it out"
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
        "store": split_fingerprint(request.dataset.fingerprint)[0],
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


def refuse_earlier(stored: Mapping[str, Any], dataset: Any) -> None:
    """Raise IdentityError if a run is of the store before rows were appended."""
    table = getattr(dataset, "dataset", dataset)
    fingerprint = stored.get("store")
    if not hasattr(table, "earlier") or fingerprint == table.fingerprint:
        return
    before = table.earlier(fingerprint)
    if before is not None:
        raise IdentityError(
            f"expected a run of all {table.n_rows:,} rows of store {table.address!r}, found one of "
            f"its first {before.n_rows:,}, before others were appended: choose another output and "
            "give that run as --start-from, or continue it with 'streammc resume'",
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
        options = dict(described)
        prior = from_description(options.pop("prior"))
        factors = factor_blocks(options.pop("factors", ()))
        model: Any = registry.model(options.pop("name"))(prior=prior, **options)
        return replace(model, factors=factors) if factors else model  # type: ignore[no-any-return]
    except (KeyError, TypeError, AttributeError, ConfigError) as error:
        raise StoreError(
            f"expected a run of a registered model, found {described!r} ({error}): continue it "
            "from Python, with the model"
        ) from None
