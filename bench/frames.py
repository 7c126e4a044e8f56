"""``fit`` of a data frame beside ``from_table`` and ``sample``: seconds from frame to draws.

Run as ``python bench/frames.py``: logistic regression of a pandas data frame on three numbers and a
factor, 4 chains of 1,000 draws after 500. The two ways take turns in one process, with a seed for
each turn; and in processes of their own, whose seconds include the imports, but not that of pandas.
Medians. Writes the table ``frames`` into ``docs/measurements/small-tables.md``.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from page import machine, publish, short

SIZES = (1_000, 100_000)
ROUNDS, PROCESSES = 21, 7
FORMULA = "late ~ distance + hour + age + C(carrier)"
DRAWS = {"draws": 1000, "warmup": 500, "chains": 4}


def frame(n: int) -> pd.DataFrame:
    """Return a table of ``n`` rows."""
    rng = np.random.default_rng(1)
    distance, hour, age = rng.normal(size=(3, n))
    carrier = rng.choice(["AA", "DL", "UA", "WN"], n)
    late = rng.logistic(size=n) < 0.5 * distance - 0.3 * hour + 0.4 * (carrier == "UA") - 0.5
    columns = {"distance": distance, "hour": hour, "age": age, "carrier": carrier}
    return pd.DataFrame({**columns, "late": late.astype(int)})


def by_fit(table: pd.DataFrame, seed: int) -> None:
    """Sample in one call."""
    import streammc

    streammc.fit(table, FORMULA, "logistic", seed=seed, **DRAWS)


def by_two_calls(table: pd.DataFrame, seed: int) -> None:
    """Sample in two calls."""
    import streammc

    data = streammc.from_table(table, formula=FORMULA)
    streammc.sample(data, streammc.models.logistic(), seed=seed, **DRAWS)


WAYS: dict[str, Callable[[pd.DataFrame, int], None]] = {"fit": by_fit, "two calls": by_two_calls}


def seconds(way: str, table: pd.DataFrame, seed: int) -> float:
    """Return the seconds of one run."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # summaries of few draws
        WAYS[way](table, seed)
    return time.perf_counter() - began


def in_a_process(way: str, n: int, seed: int) -> float:
    """Return the seconds of one run in a process of its own."""
    command = [sys.executable, __file__, way, str(n), str(seed)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def rows() -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| rows | run | `fit`, s | `from_table` and `sample`, s | ratio of medians |"
    yield "|---|---|---|---|---|"
    for n in SIZES:
        table = frame(n)
        for name, count in (("first in a process", PROCESSES), ("later", ROUNDS)):
            found: dict[str, list[float]] = {way: [] for way in WAYS}
            for turn in range(-1, count):  # the turn -1 compiles, and is left out
                for way in list(WAYS)[:: 1 if turn % 2 else -1]:
                    later = name == "later"
                    took = (
                        seconds(way, table, turn + 2) if later else in_a_process(way, n, turn + 2)
                    )
                    found[way] += [took] if turn >= 0 else []
            one, two = (statistics.median(found[way]) for way in WAYS)
            yield f"| {n:,} | {name} | {short(one)} | {short(two)} | {one / two:.2f} |"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        kind, size, number = sys.argv[1:]
        print(seconds(kind, frame(int(size)), int(number)))
    else:
        lines = list(rows())
        note = f"{machine()}, shared with other work; medians of {PROCESSES} first runs and of "
        publish("small-tables.md", "frames", [f"{note}{ROUNDS} later ones.", "", *lines])
        print("\n".join(lines))
