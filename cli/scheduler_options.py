"""Options of commands that read a whole store: where passes and chains run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from streammc.cli.options import setting

F = TypeVar("F", bound=Callable[..., Any])

_INSECURE: Final = "streammc.insecure_cluster"
"""Key of the context's ``meta``: whether a plain connection to another machine is allowed."""


def scheduler_option(function: F) -> F:
    """Add ``--scheduler`` and ``--insecure-cluster``."""
    insecure = click.option(
        "--insecure-cluster",
        is_flag=True,
        expose_value=False,
        callback=_insecure,
        is_eager=True,
        help="Use a plain tcp:// scheduler on another machine: anyone on the way can run code.",
    )
    return setting(
        "--scheduler",
        metavar="S",
        help="Where full passes run: sync, a number of local threads, tcp://HOST:PORT, "
        "tls://HOST:PORT, a scheduler's FILE.json, or local:N processes.",
    )(insecure(function))


def chains_option(function: F) -> F:
    """Add ``--chains-on``."""
    return setting(
        "--chains-on",
        type=click.Choice(["here", "workers"]),
        default="here",
        show_default=True,
        help="Chains as threads of this process, or as tasks on the cluster of --scheduler.",
    )(function)


def _insecure(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:  # a stage of a job has it from the job
        ctx.meta[_INSECURE] = True


def parse_scheduler(text: str | None) -> Any:
    """Return the value of ``--scheduler`` in the form that ``Dataset.reduce`` takes.

    A cluster stays connected until the command ends.
    """
    if text is None or text in {"sync", "threads"}:
        return None if text == "threads" else text
    if text.isdecimal() and int(text) > 0:
        return int(text)
    from streammc.stores.dask_cluster import ClusterAddress, names_cluster, scheduler_url

    if not names_cluster(text):
        raise click.BadParameter(
            "expected sync, threads, a number of threads, tcp://host:port, tls://host:port, "
            f"FILE.json or local:N, found {text!r}: choose one of them",
            param_hint="'--scheduler'",
        )
    address = ClusterAddress(text, bool(click.get_current_context().meta.get(_INSECURE)))
    if not address.local_workers:
        scheduler_url(address)
    from streammc.stores.dask_cluster import keep_open

    keep_open()
    return address
