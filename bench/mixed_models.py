"""Mixed models against NUTS on all latent effects: answers, and time per effective draw.

    PEERS=path/to/python python bench/mixed_models.py [CASE ...] [--write]

Each case is ingested and sampled through the command line, and its rows go to ``peer_mixed.py``
in the other Python, once for NumPyro and once for nutpie. Real tables need ``STREAMMC_TEST_DATA``.
Prints a table of the largest z of the means of parameters and of group effects, in Monte Carlo
standard errors of both sides, and of effective draws a second of the worst parameter; ``--write``
puts it into ``docs/measurements/mixed-models.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import arviz_stats
import numpy as np
import xarray
from page import machine, publish, short

import streammc

PEERS = ("numpyro", "nutpie")
COMMAND = str(Path(sys.executable).with_name("streammc"))
SCALE, TAU_SCALE = 5.0, 1.0


class Case(NamedTuple):
    """A table with a grouping column."""

    model: str
    formula: str
    column: str
    table: str
    """File among the public data; empty: simulated."""


CASES = {
    "Contraception": Case(
        "logistic", "used ~ age + I(age ** 2) + urban + livch + (1 | district)", "district",
        "grouped/Contraception.csv.gz",
    ),
    "VerbAgg": Case(
        "logistic", "yes ~ Anger + Gender + btype + situ + (1 | id)", "id", "grouped/VerbAgg.csv.gz"
    ),
    "ScotsSec": Case(
        "gaussian", "attain ~ verbal + sex + (1 | primary)", "primary", "grouped/ScotsSec.csv.gz"
    ),
    "simulated": Case("logistic", "", "group", ""),
}  # fmt: skip


def make_table(name: str, case: Case, folder: Path) -> list[str]:
    """Write the table of a case; return the words of ``ingest`` or ``simulate``."""
    store = str(folder / "s.zarr")
    if not case.table:
        words = ["simulate", "logistic", store, "--rows", "100000", "--dim", "5", "--seed", "1"]
        return [*words, "--groups", "2000"]
    import pandas

    frame = pandas.read_csv(Path(os.environ["STREAMMC_TEST_DATA"]) / case.table)
    if name == "Contraception":
        frame["used"] = (frame["use"] == "Y").astype(int)
    if name == "VerbAgg":
        frame["yes"] = (frame["r2"] == "Y").astype(int)
    frame.to_csv(folder / "table.csv", index=False)
    return ["ingest", str(folder / "table.csv"), store, "--formula", case.formula, "--seed", "1"]


def run(words: list[str], folder: Path) -> dict[str, Any]:
    """Run a command with ``--json``; return its document."""
    done = subprocess.run(
        [COMMAND, *words, "--json"], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}{done.stdout}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def mcse(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return effective draws and Monte Carlo standard errors of (draw, k) draws of one chain."""
    ess = np.array([float(arviz_stats.ess(each[None])) for each in draws.T])
    return ess, draws.std(axis=0, ddof=1) / np.sqrt(ess)


def measure(name: str, case: Case, draws: int) -> list[list[str]]:
    """Return the rows of the table for one case, one for each peer."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run(make_table(name, case, folder), folder)
        data = streammc.open_store(folder / "s.zarr")
        prior = ["--prior-scale", str(SCALE), "--prior"]
        prior += [f"tau[{case.column}]=half_normal({TAU_SCALE})"]
        if case.model == "gaussian":
            prior += ["--prior", f"sigma=half_normal({SCALE})"]
        words = ["sample", "s.zarr", "-o", "run", "--model", case.model, "--seed", "1", *prior]
        ours = run([*words, "--draws", "2500", "--no-audit"], folder)
        made = run(["effects", "run", "-o", "effects.zarr"], folder)
        effects = xarray.open_zarr(folder / "effects.zarr")["mean"].values[:, 0]
        arrays = [np.asarray(part) for part in data.rows().arrays]
        n, offset = data.n_rows, np.asarray(data.groups.offset)
        np.savez(
            folder / "rows.npz",
            X=arrays[0][:n].astype(np.float64),
            y=arrays[1][:n].astype(np.float64),
            group=np.repeat(np.arange(len(offset) - 1), np.diff(offset)),
            n_groups=len(offset) - 1,
            kind=case.model,
            scale=SCALE,
            tau_scale=TAU_SCALE,
            warmup=500,
            draws=draws,
        )
        script = Path(__file__).with_name("peer_mixed.py")
        lines = []
        for peer in PEERS:
            done = subprocess.run(
                [os.environ["PEERS"], str(script), place, peer],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            theirs, found = json.loads(done.stdout), dict(np.load(folder / "draws.npz"))
            head = [name, f"{n:,}", f"{len(offset) - 1:,}", ours["sampling"]["sampler"], peer]
            lines.append([*head, *compare(ours, made["mean_error"], effects, theirs, found)])
    return lines


def compare(
    ours: dict[str, Any],
    effects_error: float,
    effects: np.ndarray,
    theirs: dict[str, float],
    found: dict[str, np.ndarray],
) -> list[str]:
    """Return what follows from our summary and effects, and a peer's seconds and draws."""
    columns = [found["beta"], found["tau"][:, None]]
    if "sigma" in found:
        columns.insert(1, found["sigma"][:, None])
    reference = np.concatenate(columns, axis=1)
    ess, error = mcse(reference)
    mine = list(ours["parameters"].values())
    mean, own = (np.array([each[key] for each in mine]) for key in ("mean", "mcse_mean"))
    z = np.abs(mean - reference.mean(axis=0)) / np.hypot(own, error)
    _, of_effects = mcse(found["u"])
    z_effects = np.abs(effects - found["u"].mean(axis=0)) / np.hypot(
        of_effects, effects_error * found["u"].std(axis=0)
    )
    sampling = ours["sampling"]
    ours_rate = min(each["ess_bulk"] for each in mine) / sampling["seconds"]
    theirs_rate = float(ess.min()) / theirs["seconds"]
    setup = sampling["pass_seconds"] + sampling["warmup_seconds"]
    return [
        f"{z.max():.1f}", f"{z_effects.max():.1f}", short(ours_rate), short(theirs_rate),
        short(ours_rate / theirs_rate), f"{setup:.0f}", f"{theirs['setup_seconds']:.0f}",
    ]  # fmt: skip


def main() -> None:
    """Measure the cases asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", nargs="*", choices=[*CASES, []])
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    head = [
        "table", "rows", "groups", "sampler", "peer", "largest z", "of effects", "ours, ess/s",
        "NUTS, ess/s", "ratio", "our set-up, s", "their set-up, s",
    ]  # fmt: skip
    lines = [f"{machine()}:", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name in options.case or CASES:
        for row in measure(name, CASES[name], options.draws):
            lines.append(f"| {' | '.join(row)} |")
            print(lines[-1], flush=True)
    print("\n".join(lines))
    if options.write:
        publish("mixed-models.md", "peers", lines)


if __name__ == "__main__":
    main()
