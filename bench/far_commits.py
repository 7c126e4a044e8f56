"""Commits of a run at an address: how long they hold the sampler, and what they cost.

    python bench/far_commits.py [--commits N] [--rounds R] [--write]

Four chains, 29 coefficients, 26 statistics, 100 draws an interval, as in ``commit.py``. A run on a
local disk and one at an address of moto's S3 server, a process of its own on the same cores, take
turns. A commit at an address is copied by a thread: what holds the sampler is the call, and what is
durable when its pointer is put is timed with a wait after each call, in a run of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import obstore
from page import machine, publish, short

from streammc.trace import places
from streammc.trace.run_directory import RunDirectory
from streammc.trace.run_state import make_layout

RESULTS = Path(__file__).resolve().parent / "results" / "far_commits.json"
CHAINS, INTERVAL, DIM, STATISTICS = 4, 100, 29, 26
SIDES = ("local disk", "address", "address, waiting")


@contextmanager
def s3_server() -> Iterator[str]:
    """Run moto's server as a program; yield its URL."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        for line in server.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        url = found[0] if found else ""
        threading.Thread(target=server.stderr.read, daemon=True).start()  # its log, unread
        urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT")).close()
        yield url
    finally:
        server.kill()
        server.wait()


def commits(place: str, count: int, wait: bool) -> tuple[list[float], float]:
    """Return the milliseconds of each commit, and processor milliseconds of one."""
    names = [f"x{i}" for i in range(DIM)]
    dtypes = dict.fromkeys((f"s{i}" for i in range(STATISTICS)), "float64")
    layout = make_layout([f"beta[{name}]" for name in names], names, CHAINS, INTERVAL, dtypes)
    theta = np.random.default_rng(0).normal(size=(CHAINS, INTERVAL, DIM))
    stats = {f"s{i}": theta[:, :, i] for i in range(STATISTICS)}
    plan: dict[str, Any] = {"layout": layout, "draws": count * INTERVAL, "warmup": 0}
    times = []
    with RunDirectory.hold(place, identity={}, **plan) as run:
        used = time.process_time()
        while not run.finished():
            begun = time.perf_counter()
            run.append("draws", theta, stats, ({"x": np.arange(1000.0)}, {}))
            if wait:
                places.flush(run.path)
            times.append(1e3 * (time.perf_counter() - begun))
        places.flush(run.path)
        used = time.process_time() - used
    return times, 1e3 * used / count


def counted(requests: Counter[str]) -> None:
    """Count the requests of this process by kind."""
    for name in ("put", "get", "delete", "list", "head"):
        call = getattr(obstore, name)

        def count(*words: Any, name: str = name, call: Any = call, **options: Any) -> Any:
            requests[name] += 1
            return call(*words, **options)

        setattr(obstore, name, count)


def measured(count: int, rounds: int) -> dict[str, Any]:
    """Return medians over the rounds by side, requests of a commit, and the time of a fetch."""
    found: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
    requests: Counter[str] = Counter()
    counted(requests)
    fetches = []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds):
            for side in SIDES:
                place = f"{folder}/run-{turn}"
                if side != SIDES[0]:
                    place = f"s3://bucket/run-{turn}-{len(side)}"
                requests.clear()
                times, used = commits(place, count, side == SIDES[2])
                found[side].append((statistics.median(times), used))
            places._places.clear()
            begun = time.perf_counter()
            RunDirectory.open(f"s3://bucket/run-{turn}-{len(SIDES[2])}", verify=False)
            fetches.append(1e3 * (time.perf_counter() - begun))
    return {
        "commits": count,
        "rounds": rounds,
        "machine": machine(),
        "requests": {name: round(n / count, 2) for name, n in sorted(requests.items())},
        "fetch_ms": statistics.median(fetches),
        "sides": {
            side: [statistics.median(each) for each in zip(*pairs, strict=True)]
            for side, pairs in found.items()
        },
    }


def lines(results: dict[str, Any]) -> list[str]:
    """Return the section of the page."""
    sides, requests = results["sides"], results["requests"]
    rows = [f"| {side} | {short(ms)} | {short(used)} |" for side, (ms, used) in sides.items()]
    return [
        f"{CHAINS} chains of {DIM} coefficients, {INTERVAL} draws a commit, {results['commits']} "
        f"commits, `bench/far_commits.py` ({results['machine']}), medians of {results['rounds']} "
        "in turn. The S3 server was on the same cores, and other work too:",
        "",
        "| run | a commit holds the sampler, ms | processor time of a commit, ms |",
        "|---|---|---|",
        *rows,
        "",
        f"With a wait for the pointer, a commit takes {requests.get('put', 0):.3g} puts and "
        f"{requests.get('delete', 0):.3g} deletes. Fetching the finished run takes "
        f"{short(results['fetch_ms'])} ms.",
    ]


def main() -> None:
    """Print the medians, and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    with s3_server() as url:
        os.environ |= {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_REGION": "us-east-1",
        }
        results = measured(asked.commits, asked.rounds)
    print("\n".join(lines(results)))
    if asked.write:
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")
        publish("object-stores.md", "far_commits", lines(results))


if __name__ == "__main__":
    main()
