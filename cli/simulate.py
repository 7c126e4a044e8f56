"""``streammc simulate``: make a store of simulated rows with known parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import click

from streammc.cli.design_words import groups_text
from streammc.cli.options import argument, command
from streammc.cli.output import Output, fields
from streammc.cli.progress import Progress
from streammc.cli.values import refuse_file_name
from streammc.settings import OverwriteOption, recorded, setting


@dataclass(frozen=True, kw_only=True)
class SimulateSettings(OverwriteOption):
    """Settings of ``streammc simulate``."""

    kind: str = argument("text")
    store: str = argument("path")
    rows: int = setting(help="Number of rows.", minimum=1, most=10**12)
    dim: int = setting(help="Columns, the intercept included.", minimum=1, most=10**6)
    seed: int = setting(help="Seed of truth and rows.", minimum=0, most=2**63 - 1)
    intercept: float | None = setting(
        None,
        "True intercept, such as -14.5 for rare events; each kind has a default.",
        kind="number",
    )
    groups: int | None = setting(
        None, "Number of groups of rows, with random intercepts of standard deviation 1.", minimum=2
    )
    chunk_rows: int | None = setting(None, "Rows per chunk.", minimum=1, most=10**12)
    dtype: Literal["float32", "float64"] = setting("float32", "Dtype of the stored design.")


@command("simulate", SimulateSettings, configurable=True)
def simulate(ctx: click.Context, settings: SimulateSettings) -> None:
    """Write simulated rows of KIND, such as logistic, to STORE, which also keeps the true theta."""
    from streammc.cli.receipt import Receipt, make_output
    from streammc.stores.simulation import simulate as write
    from streammc.stores.store import info

    output: Output = ctx.obj
    store, overwrite = settings.store, settings.overwrite
    refuse_file_name(store, "the store to make")
    options = recorded(settings)
    del options["store"]
    asked = {"command": "simulate", **options}
    for name in ("intercept", "groups"):  # receipts from before these options have none
        if asked[name] is None:
            del asked[name]

    def make(replace: bool) -> dict[str, object]:
        with Progress(output) as progress:
            show = progress.of("write")
            write(path=store, **options, progress=show, overwrite=replace)
        return info(store)

    receipt = Receipt(store, asked)
    result = make_output(output, receipt, lambda: info(store), make, overwrite=overwrite)
    if result is None:
        return
    facts = {
        "store": result["path"],
        "rows": result["n_rows"],
        "features": result["n_features"],
        "groups": groups_text(result.get("groups")),
        "megabytes": result["bytes"] / 1e6,
        "fingerprint": result["fingerprint"],
    }
    output.result(result, fields(facts))
