"""``streammc pull``: copy a store from an address to a local disk."""

from __future__ import annotations

import click

from streammc.cli.options import command, path_argument, store_argument
from streammc.cli.output import Output, fields
from streammc.cli.progress import Progress
from streammc.cli.signals import Interruption


@command("pull")
@store_argument("address")
@path_argument("folder")
@click.pass_context
def pull(ctx: click.Context, address: str, folder: str) -> None:
    """Copy the store at ADDRESS to FOLDER, every object checked.

    The same command again goes on after an interruption, and leaves a complete copy as it is.
    The copy has the same fingerprint, so that runs on the one continue on the other.
    """
    from streammc.stores.cloud.staging import pull as copy

    output: Output = ctx.obj
    interruption: Interruption = ctx.find_root().obj
    with Progress(output, interruption) as progress:
        result = copy(address, folder, lambda done, total: progress("pull", done, total))
    if not result["bytes_read"]:
        output.note(f"{folder} has every object already: nothing to copy")
    facts = {
        "store": result["path"],
        "from": result["address"],
        "objects": result["objects"],
        "megabytes": result["bytes"] / 1e6,
        "megabytes read": result["bytes_read"] / 1e6,
        "fingerprint": result["fingerprint"],
        "seconds": result["seconds"],
    }
    output.result(result, fields(facts))
