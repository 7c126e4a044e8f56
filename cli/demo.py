"""``streammc demo``: every stage on a real data set, compared with sampling on all rows."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from streammc.cli.options import command, path_argument
from streammc.cli.output import Output, fields, number, table
from streammc.cli.signals import Interruption

FOLDER: Final = "streammc-demo"
SEED: Final = 1
TOLERANCE: Final = 0.1
"""Difference of two means, in posterior sd, that is accepted whatever the Monte Carlo error."""
Z_LIMIT: Final = 4.5


@command("demo")
@path_argument("directory", required=False)
@click.pass_context
def demo(ctx: click.Context, directory: str | None) -> int:
    """Take 10,984 real rows from CSV to a posterior in DIRECTORY (./streammc-demo).

    The stages are ingest, one full pass, hmc-ecs on a few hundred rows per iteration, its audit,
    and hmc on all rows as the reference. A second call shows the same results at once.
    """
    printer: Output = ctx.obj
    began = time.perf_counter()
    folder = _folder(printer, directory)
    with compiling_ahead() as compiled:
        document = run_demo(printer, ctx.find_root().obj, folder, compiled)
    document["seconds"] = time.perf_counter() - began
    printer.result(document, _human(document))
    if document["agrees"]:
        return 0
    printer.log("error", "hmc-ecs and hmc differ by more than they should: report this")
    return 1


def run_demo(
    output: Output, interruption: Interruption, folder: str, compiled: Callable[[], object]
) -> dict[str, Any]:
    """Run every stage in ``folder`` and return the runs and their comparison.

    ``compiled()`` waits until the samplers are compiled.
    """
    from streammc import demo_data
    from streammc.cli.build import make_model, make_sampler
    from streammc.cli.execute import execute
    from streammc.cli.inspect import describe_control_variates, describe_store
    from streammc.cli.progress import Progress
    from streammc.cli.receipt import Receipt, make_once
    from streammc.cli.report import run_document
    from streammc.control_variates.certify import compute
    from streammc.control_variates.expansion import ControlVariates
    from streammc.samplers.common.sampler import RunRequest
    from streammc.stores.ingest.ingestion import ingest
    from streammc.stores.store import open_store

    store = os.path.join(folder, "higgs.zarr")
    kept = os.path.join(folder, "higgs.cv.zarr")
    model = make_model("logistic", 10.0)
    with Progress(output, interruption) as progress:

        def make_store() -> dict[str, Any]:
            ingest(
                [str(demo_data.path())],
                store,
                response=demo_data.RESPONSE,
                progress=lambda done, total, phase: progress(phase, done, total),
            )
            return describe_store(store)

        output.note("1/4 ingest: CSV to a store, rows shuffled, features standardised")
        make_once(Receipt(store, {"command": "demo"}), lambda: describe_store(store), make_store)
        dataset = open_store(store)

        def make_control_variates() -> dict[str, Any]:
            compute(dataset, model, progress=progress.of("pass")).save(kept)
            return describe_control_variates(kept)

        output.note("2/4 summarize: the posterior mode and the expansion there")
        make_once(
            Receipt(kept, {"command": "demo", "store_fingerprint": dataset.fingerprint}),
            lambda: describe_control_variates(kept),
            make_control_variates,
        )
    cv = ControlVariates.open(kept, dataset, model)
    compiled()
    runs: dict[str, dict[str, Any]] = {}
    for name, text, warmup in (
        ("hmc-ecs", "3/4 sample: hmc-ecs on a subsample, and its audit", 1000),
        ("hmc", "4/4 sample: hmc on every row, as the reference", 500),
    ):
        output.note(text)
        sampler, _ = make_sampler(name, {}, {})
        request = RunRequest(
            dataset,
            model,
            sampler,
            cv,
            path=os.path.join(folder, name),
            warmup=warmup,
            seed=SEED,
            audit=sampler.audited,
            attributes={"settings": {"command": "demo", "sampler": name}},
        )
        # No note about a finished stage: a second call of the demo shows only the table.
        runs[name] = run_document(str(request.path), execute(output, interruption, request))
    comparison = compare(runs["hmc-ecs"]["parameters"], runs["hmc"]["parameters"])
    return {
        "directory": os.path.abspath(folder),
        "store": os.path.abspath(store),
        "control_variates": os.path.abspath(kept),
        "runs": runs,
        "comparison": comparison,
        "largest_difference_sd": max(abs(c["difference_sd"]) for c in comparison.values()),
        "agrees": all(c["agrees"] for c in comparison.values()),
    }


@contextmanager
def compiling_ahead() -> Iterator[Callable[[], object]]:
    """Compile the samplers in another process, while this one ingests and summarises.

    At the first use compilation takes half of the demo's time, and another core is idle;
    numba's disk cache passes the result to this process. Yields a function that waits for it.
    """
    # -P: nothing is imported from the current folder.
    command = [sys.executable, "-P", "-m", "streammc.numerics.compile_ahead"]
    command.append("streammc.samplers.hamiltonian.kernel")
    quiet = subprocess.DEVNULL
    try:
        process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
    except OSError:  # this process then compiles at the first use
        yield lambda: None
        return
    try:
        yield process.wait
    finally:
        process.kill()
        process.wait()


def compare(ours: dict[str, Any], reference: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the difference of the means of two runs by parameter, in posterior sd."""
    result = {}
    for label, own in ours.items():
        other = reference[label]
        difference = (own["mean"] - other["mean"]) / other["sd"]
        mcse = float((own["mcse_mean"] ** 2 + other["mcse_mean"] ** 2) ** 0.5) / other["sd"]
        result[label] = {
            "difference_sd": difference,
            "mcse_sd": mcse,
            "sd_ratio": own["sd"] / other["sd"],
            "agrees": abs(difference) <= max(TOLERANCE, Z_LIMIT * mcse),
        }
    return result


def _folder(output: Output, directory: str | None) -> str:
    if directory is not None:
        os.makedirs(directory, exist_ok=True)
        return directory
    try:
        os.makedirs(FOLDER, exist_ok=True)
        if os.access(FOLDER, os.W_OK | os.X_OK):
            return FOLDER
    except OSError:
        pass
    folder = tempfile.mkdtemp(prefix="streammc-demo-")
    output.note(f"the current folder is not writable: using {folder}")
    return folder


def _human(document: dict[str, Any]) -> str:
    from streammc.cli.report import audit_text
    from streammc.diagnostics.text import between, interval_heading
    from streammc.diagnostics.weights import Audit
    from streammc.settings import INTERVAL

    ours, reference = document["runs"]["hmc-ecs"], document["runs"]["hmc"]
    rows = []
    for label, one in ours["parameters"].items():
        other, apart = reference["parameters"][label], document["comparison"][label]
        rows.append(
            [
                label,
                *(number(one[name]) for name in ("mean", "sd")),
                between(number(one["q5"]), number(one["q95"])),
                f"{one['ess_bulk']:.0f}",
                f"{one['r_hat']:.3f}",
                number(other["mean"]),
                f"{apart['difference_sd']:+.3f}",
                f"{apart['mcse_sd']:.3f}",
            ]
        )
    band = interval_heading(INTERVAL)
    header = ("parameter", "mean", "sd", band, "ess_bulk", "r_hat", "hmc mean")
    posterior = table([*header, "difference/sd", "mcse/sd"], rows)
    cost = table(
        ["cost", "rows an iteration", "iterations", "rows from disk", "seconds", "warm-up seconds"],
        [_cost(name, run["sampling"]) for name, run in document["runs"].items()],
    )
    places = fields(
        {
            "largest difference": f"{document['largest_difference_sd']:.3f} posterior sd from "
            f"full-data hmc: {'they agree' if document['agrees'] else 'THEY DIFFER'}",
            "store": document["store"],
            "control variates": document["control_variates"],
            "run of hmc-ecs": ours["run"],
            "run of hmc": reference["run"],
            "read one with": f'xarray.open_datatree("{ours["run"]}", engine="zarr")',
            "seconds in all": f"{document['seconds']:.1f}",
        }
    )
    return "\n\n".join([posterior, cost, audit_text(Audit.from_json(ours["audit"])), places])


def _cost(name: str, sampling: dict[str, Any]) -> list[str]:
    return [
        name,
        f"{sampling['rows_per_iteration']:,.0f}",
        f"{sampling['iterations']:,}",
        f"{sampling['rows_read']:,}",
        f"{sampling['seconds']:.2f}",
        f"{sampling['warmup_seconds']:.2f}",
    ]
