"""Jobs and stores of existing runs, rebuilt from the records of a run directory."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from typing import Any

from streammc.cli.build import model_of_run, sampler_of_run
from streammc.cli.execute import Job, settings_of_run
from streammc.errors import DataError, IdentityError, MissingError


def recorded_job(
    path: str, *, draws: int | None = None, scheduler: Any = None, allow_code: bool = False
) -> Job:
    """Return the job that began the run at ``path``.

    Parameters
    ----------
    path
        Directory of the run.
    draws
        New number of draws per chain; ``None`` for the planned number.
    scheduler
        Scheduler of full passes, see ``Dataset.reduce``.
    allow_code
        Whether a model of the user's own may be imported again.

    Raises
    ------
    MissingError
        If the run or its store does not exist.
    IdentityError
        If another store is at the path of its store.
    """
    from streammc.control_variates.expansion import ControlVariates
    from streammc.diagnostics.stopping import StopRule
    from streammc.likelihood.grouped import by_group
    from streammc.likelihood.temperature import schedule_of, temperature_of, tempered
    from streammc.runs.job import STOPPING
    from streammc.runs.setup import CONTROL_VARIATES
    from streammc.trace.run_directory import RunDirectory

    run = RunDirectory.open(path, verify=False)
    identity, attributes = run.identity, run.attributes
    dataset = store_of_run(run)
    settings = attributes.get("settings") or None
    dataset, model = by_group(dataset, model_of_run(identity, settings, allow_code))
    kept, schedule = None, schedule_of(identity)
    if identity["control_variates"] != "auto":
        sampled = tempered(dataset, temperature_of(identity, attributes))
        kept = ControlVariates.open(os.path.join(path, CONTROL_VARIATES), sampled, model)
    audit = (settings or {}).get("audit")
    sampler, options = sampler_of_run(identity)
    stopping = attributes.get(STOPPING)
    planned = stopping["draws"] if stopping else run.draws
    return Job(
        dataset=dataset,
        model=model,
        sampler=sampler,
        sampler_options=options,
        control_variates=kept,
        path=path,
        draws=planned if draws is None else draws,
        warmup=identity["warmup"],
        chains=identity["chains"],
        seed=identity["seed"],
        audit="auto" if audit is None else audit,
        scheduler=scheduler,
        settings=settings,
        temperature=schedule.describe(),
        stopping=StopRule.parse(stopping and stopping["rule"]),
    )


def store_of_run(run: Any, option: str | None = None) -> Any:
    """Open the store that a run was sampled from.

    ``option`` is the option of the command that takes its new place, for messages.

    Raises
    ------
    MissingError, IdentityError, DataError
        If the store does not exist any more, is another one, or was never on disk.
    """
    from streammc.stores.store import open_store

    address = run.attributes.get("store")
    if not isinstance(address, str) or address == "memory":
        raise DataError(
            f"expected {str(run.path)!r} to be a run on a store, found one on arrays in memory: "
            "continue it from Python, with the arrays"
        )
    try:
        dataset = open_store(address)
    except MissingError:
        raise MissingError(
            f"expected the store of {str(run.path)!r} at {address!r}, found nothing: put it back, "
            f"or {_elsewhere(run, option)}"
        ) from None
    if dataset.fingerprint == run.identity["store"]:
        return dataset
    before = dataset.earlier(run.identity["store"])
    if before is None:
        raise IdentityError(
            f"expected the store of {str(run.path)!r} at {address!r} (fingerprint "
            f"{run.identity['store'][:12]}), found {dataset.fingerprint[:12]}: move that one away, "
            f"then put the right one back, or {_elsewhere(run, option)}"
        )
    return before  # rows were appended since


def _elsewhere(run: Any, option: str | None) -> str:
    """Return the advice for a run whose store was moved."""
    if option is not None:
        return f"give its new path as {option}"
    settings = run.attributes.get("settings")
    if not settings:
        return "call streammc.sample again with the store at its new place, and with path"
    return f"if it has moved, tell the run where: {sample_command(run)}"


def sample_command(run: Any, store: str = "NEW_STORE") -> str:
    """Return the ``streammc sample`` command that continues a run, with non-default settings.

    Parameters
    ----------
    run
        The opened run, with recorded settings.
    store
        Present path of its store.
    """
    from streammc.cli.sample import sample

    settings = settings_of_run(run)
    words = ["streammc", "sample", store, "-o", str(run.path)]
    for parameter in sample.params:
        value = settings.get(parameter.name or "")
        if parameter.name == "store" or value in (None, {}, [], parameter.default):
            continue
        flag = parameter.opts[0]
        if isinstance(value, bool):
            words.append(flag if value else parameter.secondary_opts[0])
        elif parameter.name == "check":
            words += [flag, ",".join(f"{key}={each:g}" for key, each in value.items())]
        elif isinstance(value, Mapping):
            for key, each in value.items():
                text = each if isinstance(each, str) else json.dumps(each).replace("null", "none")
                words += [flag, text if key == "*" else f"{key}={text}"]
        else:
            words += [flag, str(value)]
        if parameter.name == "model" and ":" in str(value):
            words.append("--allow-code")
    return shlex.join(words)
