"""What the pictures of all papers share: colours, size, frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

GREEN, RED, GREY, BLUE = "#2a7f3e", "#c0392b", "#8a8a8a", "#2c6fbb"
DPI = 80


def save(figure: Any, path: Path) -> None:
    """Write a picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)


def new_figure(
    rows: int, columns: int, width: float, height: float, **options: Any
) -> tuple[Any, Any]:
    """Return a figure and its (rows, columns) panels, without the upper and right frame."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=7)
    return figure, axes
