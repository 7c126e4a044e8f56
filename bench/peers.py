"""streammc against its peers on one posterior: effective draws per second, one chain each.

A million rows, 29 columns, logistic (``peer_data.py``): NumPyro's HMCECS, BlackJAX's SGLD and
SGHMC with control variates, and NUTS on all rows by nutpie. Every side is a process of its own,
gets the mode and the Hessian there, and takes its turn in every round; medians over rounds.

    PEERS=path/to/python python bench/peers.py [PEER ...] [--rounds 5] [--only TABLE ...] [--write]

``PEERS`` is a Python with ``bench/requirements.txt`` and streammc's dependencies. ``--search``
tries the settings of ``peer_search.py`` once each and prints them instead; ``--rows 10500000
--rounds 1`` measures memory. Prints a table and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from page import machine, publish, short
from peer_data import load_rows, make_rows, worth
from peer_search import NUMPYRO, NUMPYRO_FIRST, NUMPYRO_HMC, NUMPYRO_HMC_4, SEARCH, SGHMC, SGLD

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "peers.json"
MODULES = {
    "numpyro": "numpyro",
    "numpyro-first": "numpyro",
    "numpyro-hmc": "numpyro",
    "numpyro-hmc-4": "numpyro",
    "sgld": "blackjax",
    "sghmc": "blackjax",
    "nutpie": "nutpie",
}
PAGE, TRIED = "against-peers.md", "peers.md"
"""The page of each at its best; that of other settings."""
TITLES = {
    "same": "the same settings: order 2, m = 1300, 6 steps of 0.2",
    "best": "each at its best",
    "ten": "ten rows on both sides",
}

# name -> (script, options); the best of each is what --search found
BEST: dict[str, tuple[str, dict[str, Any]]] = {
    "streammc": ("streammc", {"sampler": {}, "warmup": 1000, "draws": 100_000}),
    "numpyro": ("numpyro", {**NUMPYRO, "draws": 20_000}),
    "numpyro-first": ("numpyro", {**NUMPYRO, **NUMPYRO_FIRST, "draws": 20_000}),
    "numpyro-hmc": ("numpyro", {**NUMPYRO, **NUMPYRO_HMC, "draws": 20_000}),
    "numpyro-hmc-4": ("numpyro", {**NUMPYRO, **NUMPYRO_HMC_4, "draws": 20_000}),
    "sgld": ("blackjax", {**SGLD, "draws": 100_000}),
    "sghmc": ("blackjax", {**SGHMC, "draws": 50_000}),
    "nutpie": ("nutpie", {"warmup": 100, "draws": 300}),
}
SIX_STEPS = {"subsample_size": 1300, "step_size": 0.2, "trajectory_length": 1.2, "order": 2}
EQUAL: dict[str, tuple[str, dict[str, Any]]] = {
    "streammc": (
        "streammc",
        {
            "sampler": {
                **SIX_STEPS,
                "n_blocks": 100,
                "certainty": False,
                "integrator": "leapfrog",
            },
            "warmup": 1000,
            "draws": 20_000,
        },
    ),
    "numpyro": ("numpyro", {**NUMPYRO, **SIX_STEPS, "inner": "hmc", "warmup": 0, "draws": 1000}),
}
TEN_ROWS = {"subsample_size": 10}
TEN: dict[str, tuple[str, dict[str, Any]]] = {
    "streammc": (
        "streammc",
        {**BEST["streammc"][1], "sampler": {**TEN_ROWS, "certainty": False}},
    ),
    **{
        name: ("numpyro", {**BEST[name][1], **TEN_ROWS})
        for name in ("numpyro", "numpyro-hmc", "numpyro-hmc-4")
    },
}


def turn(script: str, options: dict[str, Any], folder: str, **environment: str) -> dict[str, Any]:
    """Run one side; return what it measured and its effective draws per second."""
    python = sys.executable if script == "streammc" else os.environ["PEERS"]
    job = json.dumps({**options, "folder": folder})
    path = os.pathsep.join([str(HERE.parent), str(HERE)])
    began = time.perf_counter()
    finished = subprocess.run(
        [python, str(HERE / f"peer_{script}.py"), job],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )
    whole = time.perf_counter() - began
    if finished.returncode:
        raise SystemExit(f"{script} {options} failed:\n{finished.stderr[-2000:]}")
    result = json.loads(finished.stdout.splitlines()[-1])
    _, _, centre, factor = load_rows(folder)
    result |= worth(np.load(f"{folder}/draws.npy"), centre, factor)
    for key, unit in (("per_second", "seconds"), ("per_cpu_second", "cpu_seconds")):
        result[key] = result["ess"] / result[unit]
        result[f"squares_{key}"] = result["ess_squares"] / result[unit]
    result["process_seconds"] = whole
    result["worse_per_second"] = min(result["per_second"], result["squares_per_second"])
    result["microseconds"] = 1e6 * result["seconds"] / result["iterations"]
    return result


def medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median of every number, and the first of everything else."""
    return {
        key: statistics.median(run[key] for run in runs) if isinstance(value, float) else value
        for key, value in runs[0].items()
    }


def compare(
    sides: dict[str, tuple[str, dict[str, Any]]], folder: str, rounds: int
) -> dict[str, Any]:
    """Let the sides take turns; return medians, and medians of the ratios within a round."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for turns in range(rounds):
        for name, (script, options) in sides.items():
            runs[name].append(turn(script, options, folder))
            print(turns, name, json.dumps(runs[name][-1]), file=sys.stderr, flush=True)
    found = {name: medians(measured) for name, measured in runs.items()}
    for name, measured in runs.items():
        for key in ("per_second", "worse_per_second", "per_cpu_second"):
            ratios = [a[key] / b[key] for a, b in zip(runs["streammc"], measured, strict=True)]
            found[name][f"ratio {key}"] = statistics.median(ratios)
    return found


def compiling(side: tuple[str, dict[str, Any]], folder: str) -> float:
    """Return the seconds that streammc compiles, once after an installation."""
    cache = {"STREAMMC_CACHE_DIR": f"{folder}/cache"}
    empty, full = (turn(*side, folder, **cache)["process_seconds"] for _ in range(2))
    return float(empty - full)


def table(found: dict[str, Any]) -> Iterable[str]:
    """Yield the rows of one comparison in Markdown."""
    yield (
        "| | us an iteration | parameters/s | squares/s | sd error | set-up (compiling) | peak "
        "| ratio | of the worse | per CPU second |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, run in found.items():
        compiled = f" ({run['compile_seconds']:.0f} s)" if "compile_seconds" in run else ""
        numbers = [run[key] for key in ("microseconds", "per_second", "squares_per_second")]
        ratios = [
            run[f"ratio {key}"] for key in ("per_second", "worse_per_second", "per_cpu_second")
        ]
        yield (
            f"| {name} | {' | '.join(map(short, numbers))} | {100 * run['sd_error']:.1f} % | "
            f"{run['setup_seconds']:.0f} s{compiled} | {run['peak_gb']:.1f} GB | "
            f"{' | '.join(map(short, ratios))} |"
        )


def summary(found: dict[str, Any]) -> Iterable[str]:
    """Yield one sentence a peer."""
    ours = found["streammc"]
    for name, run in found.items():
        if name != "streammc":
            yield (
                f"- {name}: {short(run['ratio per_second'])} times its effective draws per second "
                f"for the parameters, {short(run['ratio worse_per_second'])} times for the worse "
                f"of parameters and squares; set-up {ours['setup_seconds']:.0f} s to "
                f"{run['setup_seconds']:.0f} s, peak memory {ours['peak_gb']:.1f} GB to "
                f"{run['peak_gb']:.1f} GB."
            )


def search(peers: list[str], folder: str) -> Iterable[str]:
    """Try every setting once; yield what it gives, per second and per CPU second, in Markdown."""
    yield (
        "| | parameters/s | squares/s | per CPU second | squares | us an iteration | steps "
        "| sd error | set-up | peak |"
    )
    yield "|---" * 10 + "|"
    keys = ("per_second", "squares_per_second", "per_cpu_second", "squares_per_cpu_second")
    for name, script, base, changes in SEARCH:
        for change in changes if name in peers else []:
            options = {**base, **change}
            run = turn(script, options, folder)
            named = ", ".join([name, *(f"{k} {v}" for k, v in change.items())])
            rates = " | ".join(f"{run[key]:,.0f}" for key in keys)
            yield (
                f"| {named.replace('_', ' ')} | {rates} | {run['microseconds']:.0f} | "
                f"{run.get('steps', options.get('length')):.1f} | {100 * run['sd_error']:.1f} % | "
                f"{run['setup_seconds']:.0f} s | {run['peak_gb']:.1f} GB |"
            )


def foremost(lines: list[str], count: int = 3) -> list[str]:
    """Return the best settings of each side in a table of :func:`search`.

    The ``count`` best per CPU second for the parameters, and as many for the squares; of stochastic
    gradients those whose error of an sd is at most 3 %.
    """
    found: dict[str, list[tuple[float, float, str]]] = {}
    for line in lines[2:]:
        name, _, _, means, squares, *_, error, _, _ = line.strip("| ").split(" | ")
        side = name.split(",")[0] + " hmc" * ("inner hmc" in name)
        if side not in ("sgld", "sghmc") or float(error.removesuffix(" %")) <= 3.0:
            rates = (float(rate.replace(",", "")) for rate in (means, squares))
            found.setdefault(side, []).append((*rates, line))
    kept = {
        line
        for settings in found.values()
        for key in (0, 1)
        for *_, line in sorted(settings, key=lambda one: one[key], reverse=True)[:count]
    }
    return [*lines[:2], *(line for line in lines[2:] if line in kept)]


def check(peers: list[str]) -> None:
    """Stop with one line where a peer is missing."""
    python = os.environ.get("PEERS")
    if not python:
        raise SystemExit("set PEERS to a Python that has bench/requirements.txt")
    for module in sorted({MODULES[name] for name in peers if name in MODULES}):
        asked = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False)
        if asked.returncode:
            raise SystemExit(
                f"{python} cannot import {module}: install bench/requirements.txt into it"
            )


def main() -> None:
    """Compare, or search; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="*", metavar="PEER", help=", ".join(MODULES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="+", default=list(TITLES), choices=list(TITLES))
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--write", action="store_true", help="renew the page and the JSON")
    options = parser.parse_args()
    if unknown := set(options.peers) - {"streammc", *MODULES}:
        parser.error(f"unknown {sorted(unknown)}; choose from {list(MODULES)}")
    peers = options.peers or list(MODULES)
    check(peers)
    document: dict[str, Any] = {"rows": options.rows, "machine": machine()}
    with tempfile.TemporaryDirectory() as folder:
        make_rows(folder, options.rows)
        if options.search:
            lines = []
            for line in search(peers, folder):
                print(line, flush=True)
                lines.append(line)
            if options.write:
                publish(TRIED, "search", [*foremost(lines), "", f"{document['machine']}."])
            return
        of_numpyro = "numpyro" in peers and options.rows == 1_000_000
        for name, sides in (("same", EQUAL), ("ten", TEN)):
            if of_numpyro and name in options.only:
                document[name] = compare(sides, folder, options.rounds)
        if "best" in options.only:
            sides = {name: BEST[name] for name in dict.fromkeys(["streammc", *peers])}
            document["best"] = compare(sides, folder, options.rounds)
            document["best"]["streammc"]["compile_seconds"] = compiling(sides["streammc"], folder)
    for name, title in TITLES.items():
        if name in document:
            print("\n".join([f"\n{title}\n", *table(document[name])]))
    print(json.dumps({"peers": document}))
    if options.write:
        name = RESULTS.name if options.rows == 1_000_000 else f"peers_{options.rows}.json"
        path = RESULTS.with_name(name)
        kept = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**kept, **document}, indent=1) + "\n")
    if options.write and options.rows == 1_000_000:
        for name in TITLES:
            if name not in document:
                continue
            versions = "; ".join(dict.fromkeys(run["version"] for run in document[name].values()))
            about = f"{document['machine']}; rounds: {options.rounds}; {versions}."
            publish(PAGE if name == "best" else TRIED, name, [*table(document[name]), "", about])
            if name == "best":
                publish(PAGE, "peers", [*summary(document[name]), "", about])


if __name__ == "__main__":
    main()
