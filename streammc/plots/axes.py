"""Axes of matplotlib, colours, and the message where a package is missing."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Final

from streammc.errors import ConfigError

INK: Final = "#1f2328"
MUTED: Final = "#636c76"
GRID: Final = "#d1d9e0"
CHAINS: Final = ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#9a6700", "#cf222e")
"""Colours of chains; they repeat."""
ACCENT: Final = CHAINS[0]
LIMIT: Final = CHAINS[-1]


def require_packages(what: str, *packages: str) -> None:
    """Raise ConfigError if a package of the extra ``plots`` is missing."""
    for package in packages:
        if find_spec(package) is None:
            raise ConfigError(
                f"expected the package {package} for {what}, found none: "
                "pip install 'streammc[plots]'"
            )


def axes_of(ax: Any, rows: int = 1) -> Any:
    """Return ``ax``, or new axes of pyplot: one, or an array of ``rows`` with a shared x."""
    require_packages("plots", "matplotlib")
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(rows, 1, sharex=True, layout="constrained")[1]


def plain(ax: Any) -> Any:
    """Give axes the style of the plots: two spines, a light grid, small labels."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(MUTED)
    ax.grid(True, color=GRID, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(colors=INK, labelsize="small", length=3)
    ax.xaxis.label.set_color(INK)
    ax.yaxis.label.set_color(INK)
    return ax


def logarithmic(ax: Any) -> None:
    """Give axes a logarithmic y with plain numbers: 1e-05, not a power in mathematical type."""
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.yaxis.set_minor_formatter(lambda value, _: "")


def legend(ax: Any, **options: Any) -> None:
    """Draw a legend without a frame."""
    ax.legend(frameon=False, fontsize="small", labelcolor=INK, **options)
