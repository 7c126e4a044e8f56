"""How soon a command is at work: ``--help``, and the first iteration of ``sample``.

Run as ``python bench/startup.py``. Makes a store of 20,000 rows and its control variates
in a temporary folder and runs every command once, so that all code is compiled and
cached; then each in turn, seven times. The first iteration is the line of phase
``start`` of ``--log-format json`` on stderr. Interpreters differ, so an empty one is
timed beside them. Prints JSON and the table of the documentation, medians.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

ROUNDS = 7
COMMAND = str(Path(sys.executable).with_name("streammc"))
MODEL = ["--model", "logistic", "--prior-scale", "10"]
WORDS = [*MODEL, "--seed", "1", "--draws", "50", "--warmup", "50"]
LIMITS = {"help": 0.2, "given": 2.5, "computed": 2.5}
LABELS = {
    "python": "`python -c pass`",
    "help": "`streammc --help`",
    "given": "`sample`, control variates given: to the first iteration",
    "computed": "`sample`, control variates computed: to the first iteration",
    "whole": "`sample`, control variates computed: to the end",
}


def seconds_of(*command: str) -> float:
    """Return the wall time of a command."""
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def first_iteration(*words: str) -> tuple[float, float]:
    """Return the seconds until the first iteration, and until the end."""
    began = time.perf_counter()
    first = float("nan")
    command = [COMMAND, *words, "--log-format", "json"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            entry = json.loads(line)
            if entry.get("phase") == "start":
                first = time.perf_counter() - began
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {process.returncode}")
    return first, time.perf_counter() - began


def main() -> None:
    found: dict[str, list[float]] = {name: [] for name in LABELS}
    with tempfile.TemporaryDirectory(prefix="streammc-startup-") as name:
        os.chdir(name)
        size = ["--rows", "20000", "--dim", "5", "--seed", "1", "--quiet"]
        seconds_of(COMMAND, "simulate", "logistic", "s.zarr", *size)
        seconds_of(COMMAND, "summarize", "s.zarr", "-o", "cv.zarr", *MODEL)
        kept = ["--control-variates", "cv.zarr"]
        for number in range(ROUNDS + 1):
            python, listed = seconds_of(sys.executable, "-c", "pass"), seconds_of(COMMAND, "--help")
            given, _ = first_iteration("sample", "s.zarr", "-o", f"g{number}", *WORDS, *kept)
            computed, whole = first_iteration("sample", "s.zarr", "-o", f"c{number}", *WORDS)
            if number:  # the first round compiles
                values = (python, listed, given, computed, whole)
                for kind, value in zip(LABELS, values, strict=True):
                    found[kind].append(value)
    seconds = {kind: statistics.median(values) for kind, values in found.items()}
    missed = [kind for kind, limit in LIMITS.items() if not seconds[kind] <= limit]
    print(json.dumps({"seconds": found, "medians": seconds, "missed": missed}))
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    print(
        f"\n{names[0] if names else 'unknown processor'}, {os.cpu_count()} cores, {date.today()};"
    )
    print(f"medians of {ROUNDS}\n")
    print("| command | seconds | limit |")
    print("|---|---|---|")
    for kind, label in LABELS.items():
        print(f"| {label} | {seconds[kind]:.2f} | {LIMITS.get(kind, '')} |")


if __name__ == "__main__":
    main()
