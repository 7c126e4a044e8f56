"""Peak anonymous memory of ``summarize`` and ``sample`` on tables larger than it.

Run as ``python bench/memory.py [ROWS [FOLDER]]``, by default 10,000,000 rows of 20 features
in a temporary folder, which needs 0.9 GB of disk. Makes the store with ``simulate``, then
runs the real commands as subprocesses and prints a table. Anonymous memory is what has no
file behind it (``RssAnon``), summed over the process and all its descendants and sampled
every 20 ms; pages of mapped chunk files are the operating system's to drop and do not
count.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import NamedTuple

DIM = 20
PERIOD = 0.02
LIMITS = {"summarize": 1000, "sample": 600}
"""MB of anonymous memory that each command may take at the default size."""
COMMAND = str(Path(sys.executable).with_name("streammc"))


class Usage(NamedTuple):
    """What one command took."""

    seconds: float
    anonymous: int
    """Bytes, the peak of the sum over the process tree."""
    resident: int
    """Bytes, the same with pages of files."""
    output: str


def descendants(pid: int) -> list[int]:
    """Return ``pid`` and every process below it that is alive."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:  # ended meanwhile
                continue
    return found


def tree_memory(pid: int) -> tuple[int, int]:
    """Return the bytes of ``RssAnon`` and ``VmRSS`` of a process tree."""
    total = {"RssAnon": 0, "VmRSS": 0}
    for process in descendants(pid):
        try:
            status = Path(f"/proc/{process}/status").read_text()
        except OSError:
            continue
        for line in status.splitlines():
            name, _, value = line.partition(":")
            if name in total:
                total[name] += int(value.split()[0]) * 1024
    return total["RssAnon"], total["VmRSS"]


def measure(*arguments: str, command: str | None = None) -> Usage:
    """Run ``streammc``, or another command, with ``arguments`` and watch its memory."""
    started = time.monotonic()
    anonymous = resident = 0
    with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen([command or COMMAND, *arguments], stdout=printed, stderr=errors)
        while process.poll() is None:
            now = tree_memory(process.pid)
            anonymous, resident = max(anonymous, now[0]), max(resident, now[1])
            time.sleep(PERIOD)
        seconds = time.monotonic() - started
        errors.seek(0)
        printed.seek(0)
        if process.returncode:
            raise RuntimeError(f"{command} {' '.join(arguments)}: {errors.read()}")
        return Usage(seconds, anonymous, resident, printed.read())


def commands(folder: Path, draws: int = 1000) -> dict[str, list[str]]:
    """Return the arguments of each measured command, in the order in which they run."""
    store, kept = str(folder / "store.zarr"), str(folder / "cv.zarr")
    model = ["--model", "logistic", "--prior-scale", "10", "--quiet", "--json"]
    run = ["--sampler", "hmc-ecs", "--control-variates", kept, "--chains", "4", "--seed", "1"]
    counts = ["--draws", str(draws), "--warmup", str(draws)]
    return {
        "summarize": ["summarize", store, "-o", kept, *model],
        "sample": ["sample", store, "-o", str(folder / "run"), *run, *counts, *model],
    }


def simulate(folder: Path, rows: int) -> None:
    """Write the store that the commands read."""
    store = str(folder / "store.zarr")
    measure("simulate", "logistic", store, "--rows", str(rows), "--dim", str(DIM), "--seed", "7")


def main() -> int:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    base = sys.argv[2] if len(sys.argv) > 2 else None
    needed, free = rows * (4 * DIM + 1) * 1.2, shutil.disk_usage(base or tempfile.gettempdir()).free
    if free < needed:
        raise SystemExit(f"expected {needed / 1e9:.1f} GB of free disk, found {free / 1e9:.1f} GB")
    over = 0
    with tempfile.TemporaryDirectory(prefix="streammc-memory-", dir=base) as name:
        folder = Path(name)
        simulate(folder, rows)
        size = sum(path.stat().st_size for path in (folder / "store.zarr").rglob("*"))
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
        machine = names[0] if names else "unknown processor"
        print(f"{machine}, {os.cpu_count()} cores, {date.today()}; {rows:,} rows x {DIM} features,")
        print(f"store of {size / 1e6:.0f} MB, 4 chains of 1000 + 1000 iterations\n")
        print("| command | anonymous, MB | limit | with files, MB | seconds |")
        print("|---|---|---|---|---|")
        for command, arguments in commands(folder).items():
            usage = measure(*arguments)
            over += usage.anonymous > LIMITS[command] * 1e6
            print(
                f"| `{command}` | {usage.anonymous / 1e6:.0f} | {LIMITS[command]} "
                f"| {usage.resident / 1e6:.0f} | {usage.seconds:.1f} |",
                flush=True,
            )
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
