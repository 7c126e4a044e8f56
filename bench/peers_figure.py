"""Time per iteration against rows, streammc beside its peers, from the recorded measurements.

``python bench/peers_figure.py --write`` draws ``docs/explanation/time-against-peers.png`` from
``results/scale.json``, ``peers.json`` and ``peers_10500000.json``, and prints the points.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).resolve().parent / "results"
PICTURE: Final = RESULTS.parents[1] / "docs" / "explanation" / "time-against-peers.png"
Points = list[tuple[float, float]]
"""(rows, microseconds an iteration), by rows."""


def _read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def series() -> dict[str, Points]:
    """Return the points of every line by its label."""
    scale, peers = _read("scale"), [_read("peers"), _read("peers_10500000")]

    def of(name: str) -> Points:
        measured = [(each["rows"], each["best"][name]) for each in peers if name in each["best"]]
        return [(n, 1e6 * one["seconds"] / one["iterations"]) for n, one in measured]

    stored = [(each["rows"], 1e6 * each["mapped"]["seconds"]) for each in scale]
    return {
        "streammc, 8 columns, from a store on disk": stored,
        "streammc, 29 columns, in memory": of("streammc"),
        "NumPyro HMCECS, 29 columns, in memory": of("numpyro"),
        "nutpie on all rows, 29 columns, in memory": of("nutpie"),
    }


def draw(lines: dict[str, Points], path: Path) -> None:
    """Draw the line of one machine, and the points of the peers, measured on two machines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for (label, points), style in zip(lines.items(), ("o-", "s", "^", "D"), strict=True):
        axes.plot(*zip(*points, strict=True), style, label=label)
    axes.set(xscale="log", yscale="log", xlabel="rows", ylabel="microseconds an iteration")
    axes.set_ylim(1.0, 1e6)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="upper right")
    figure.savefig(path, dpi=120, metadata={"Software": None})


def main() -> None:
    """Print the points, or draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="draw the picture of the docs")
    lines = series()
    if parser.parse_args().write:
        draw(lines, PICTURE)
    for label, points in lines.items():
        print(label, *(f"{n:,.0f}: {us:,.2f}" for n, us in points), sep="; ")


if __name__ == "__main__":
    main()
