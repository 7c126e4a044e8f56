"""How soon a command is at work: ``--help``, and the first iteration of ``sample``.

Run as ``python bench/startup.py``. Makes a store of 20,000 rows and its control variates
in a temporary folder and runs every command once, so that all code is compiled and
cached; then each in turn, seven times. The first iteration is the line of phase
``start`` of ``--log-format json`` on stderr; processor time is that of the process at that
moment. Interpreters differ, so an empty one is timed beside them. Bytecode is kept as after an
installation, whatever ``PYTHONDONTWRITEBYTECODE`` says. Prints JSON and the table of the
documentation, medians.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

ROUNDS = 7
COMMAND = str(Path(sys.executable).with_name("streammc"))
MODEL = ["--model", "logistic", "--prior-scale", "10"]
WORDS = [*MODEL, "--seed", "1", "--draws", "50", "--warmup", "50"]
LIMITS = {"help": 0.2, "given": 0.8, "computed": 0.8}
Seconds = tuple[float, float]
"""Wall and processor time."""

LABELS = {
    "python": "`python -c pass`",
    "help": "`streammc --help`",
    "given": "`sample`, control variates given: to the first iteration",
    "computed": "`sample`, control variates computed: to the first iteration",
    "whole": "`sample`, control variates computed: to the end",
}


_TICKS = os.sysconf("SC_CLK_TCK")


def seconds_of(*command: str) -> Seconds:
    """Return the wall and processor time of a command."""
    before = os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    spent = after.children_user + after.children_system
    return after.elapsed - before.elapsed, spent - before.children_user - before.children_system


def processor_seconds(process: int) -> float:
    """Return the processor time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def first_iteration(*words: str) -> tuple[Seconds, Seconds]:
    """Return the wall and processor time until the first iteration, and until the end."""
    before = os.times()
    first = (float("nan"), float("nan"))
    command = [COMMAND, *words, "--log-format", "json"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            entry = json.loads(line)
            if entry.get("phase") == "start":
                first = os.times().elapsed - before.elapsed, processor_seconds(process.pid)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {process.returncode}")
    after = os.times()
    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    return first, (after.elapsed - before.elapsed, spent)


def main() -> None:
    found: dict[str, list[Seconds]] = {name: [] for name in LABELS}
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
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
    medians = {
        kind: [statistics.median(each) for each in zip(*values, strict=True)]
        for kind, values in found.items()
    }
    seconds = {kind: wall for kind, (wall, _) in medians.items()}
    missed = [kind for kind, limit in LIMITS.items() if not seconds[kind] <= limit]
    print(json.dumps({"seconds": found, "medians": medians, "missed": missed}))
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    print(
        f"\n{names[0] if names else 'unknown processor'}, {os.cpu_count()} cores, {date.today()};"
    )
    print(f"medians of {ROUNDS}\n")
    print("| command | wall, s | CPU, s | limit of wall, s |")
    print("|---|---|---|---|")
    for kind, label in LABELS.items():
        wall, spent = medians[kind]
        print(f"| {label} | {wall:.2f} | {spent:.2f} | {LIMITS.get(kind, '')} |")


if __name__ == "__main__":
    main()
