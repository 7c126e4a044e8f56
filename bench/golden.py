"""Whether a change leaves every draw, statistic and answer as it was, bit for bit.

    python bench/golden.py BASE [--only NAME ...] [--python PROGRAM]

Small runs of every sampler, and of models of every kind, are made twice on this machine: from
the commit BASE, which is checked out into a temporary folder, and from this tree. Digests of
the draws and the statistics are compared, and what ``sample``, ``diagnose`` and ``info`` print
as JSON, without times and places. Digests are not kept: those of another processor differ,
and so do those of kernels that were compiled in another order, in their last bits. So each side
compiles into an empty cache of its own, in the order of the cases.

``--python`` is an interpreter with the dependencies of BASE, where they are not those of
this tree.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SHORT = ("--seed", "7", "--chains", "2", "--draws", "60", "--warmup", "60")
STORES = {
    "logistic": ("logistic", 3000, 4),
    "poisson": ("poisson", 3000, 3),
    "student-t": ("student-t", 2000, 3),
    "mixture": ("mixture", 600, 2),
    "gaussian-process": ("gaussian-process", 60, 1),
}
"""Kind, rows and columns of a simulated store, by name."""
MODELS = {"mixture": ("gaussian-mixture", "--option", "components=3", "--option", "dim=2")}
SAMPLERS = ["auto", "hmc", "hmc-ecs", "hmc-ecs-signed", "mh", "mh-austere", "mh-fixed"]
SAMPLERS += ["mh-minibatch", "mh-sublhd", "mint", "mintee", "pt", "sghmc", "sgld", "spt"]
SAMPLERS += ["smh", "stt", "tt"]
OTHERS = {
    "poisson": ("auto", "hmc", "hmc-ecs", "mh"),
    "student-t": ("auto", "hmc", "mh-minibatch"),
    "mixture": ("hmc", "pt"),
    "gaussian-process": ("pt", "tt"),
}
CASES = [("logistic", name) for name in SAMPLERS]
CASES += [(store, name) for store, names in OTHERS.items() for name in names]
OPTIONS = {"mint": ("--option", "alpha=0.6"), "mintee": ("--option", "n_levels=3")}

_PASSING = ("second", "gb_per", "path", "address", "version", "cores", "threads", "megabytes")
"""Parts of the names of what depends on the machine, the moment or the place."""


def lasting(value: Any, folder: str) -> Any:
    """Return JSON without what depends on the moment or the place."""
    if isinstance(value, dict):
        return {
            key: lasting(item, folder)
            for key, item in value.items()
            if not any(part in key for part in _PASSING)
        }
    if isinstance(value, list):
        return [lasting(item, folder) for item in value]
    return value.replace(folder, "") if isinstance(value, str) else value


def command(*words: str) -> tuple[int, str, str]:
    """Run ``streammc`` in this process; return its code and what it printed."""
    from streammc.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return code, out.getvalue(), err.getvalue()


def digests(run: Path) -> dict[str, str]:
    """Return a digest of every chunk of a run's draws and statistics."""
    found = {}
    for group in ("posterior", "sample_stats", "warmup_posterior", "warmup_sample_stats"):
        sampled = run / group.replace("posterior", "sampled_posterior")
        place = sampled if sampled.exists() else run / group
        for path in sorted(place.rglob("*")):
            if path.is_file() and path.name != "zarr.json":
                name = f"{group}/{path.relative_to(place)}"
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return found


def record(folder: Path, only: list[str]) -> dict[str, Any]:
    """Return digests and answers of all cases with the package that is imported."""
    os.chdir(folder)
    place = str(folder)
    for name, (kind, rows, columns) in STORES.items():
        sizes = ("--rows", str(rows), "--dim", str(columns), "--seed", "3")
        code, _, err = command("simulate", kind, f"{name}.zarr", *sizes)
        if code:
            raise SystemExit(f"simulate {kind}: {err}")
    found: dict[str, Any] = {}
    for store, sampler in CASES:
        case = f"{store} {sampler}"
        if only and case not in only and sampler not in only:
            continue
        model = MODELS.get(store, (store,))
        run = f"{store}-{sampler}"
        words = ("sample", f"{store}.zarr", "-o", run, "--model", *model, "--sampler", sampler)
        code, out, err = command(*words, *OPTIONS.get(sampler, ()), *SHORT, "--json", "--quiet")
        answers = {"sample": lasting(json.loads(out), place) if out else err.replace(place, "")}
        if code == 0:
            for asked in ("diagnose", "info"):
                answers[asked] = lasting(json.loads(command(asked, run, "--json")[1]), place)
        found[case] = {"code": code, "answers": answers, "digests": digests(folder / run)}
        print(f"{case}: {len(found[case]['digests'])} arrays, exit {code}", file=sys.stderr)
    return found


def differences(before: Any, now: Any, where: str = "") -> list[str]:
    """Return what differs between two JSON documents, a line each."""
    if isinstance(before, dict) and isinstance(now, dict):
        lines = []
        for key in {**before, **now}:
            if key not in before or key not in now:
                lines.append(f"{where}{key}: only {'before' if key in before else 'now'}")
            else:
                lines += differences(before[key], now[key], f"{where}{key}.")
        return lines
    if before == now:
        return []
    return [f"{where.rstrip('.')}: {json.dumps(before)[:70]} before, {json.dumps(now)[:70]} now"]


def from_tree(tree: Path, python: str, only: list[str]) -> dict[str, Any]:
    """Record all cases with the package in ``tree``, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ,
            "PYTHONPATH": str(tree),
            "OPENBLAS_NUM_THREADS": "1",
            "STREAMMC_CACHE_DIR": cache,
        }
        words = [python, str(Path(__file__).resolve()), "--record", folder, *only]
        done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    if not Path(document["package"]).is_relative_to(tree.resolve()):
        raise SystemExit(f"expected the package in {tree}, found {document['package']}")
    cases: dict[str, Any] = document["cases"]
    return cases


def compare(base: str, python: str, only: list[str]) -> tuple[list[str], int]:
    """Return the differences between BASE and this tree, and how many cases there are."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", base], stdout=subprocess.PIPE, check=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        before = from_tree(Path(folder), python, only)
    now = from_tree(ROOT, sys.executable, only)
    failed = [f"{case}: exit {found['code']}" for case, found in now.items() if found["code"]]
    return differences(before, now) + failed, len(now)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("base", nargs="?")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--record", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record:
        import streammc

        folder, *only = options.record
        cases = record(Path(folder), only)
        print(json.dumps({"package": str(Path(streammc.__file__).resolve()), "cases": cases}))
        return
    if options.base is None:
        parser.error("expected a commit to compare with")
    known = {*SAMPLERS, *(f"{store} {sampler}" for store, sampler in CASES)}
    if unknown := set(options.only) - known:
        parser.error(f"expected cases among {sorted(known)}, found {sorted(unknown)}")
    lines, cases = compare(options.base, options.python, options.only)
    print("\n".join(lines) if lines else f"{cases} cases, all equal to {options.base}")
    raise SystemExit(1 if lines else 0)


if __name__ == "__main__":
    main()
