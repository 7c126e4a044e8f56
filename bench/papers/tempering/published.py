"""What van de Meent et al. 2014 print in tables and text; ``None``: not printed."""

from __future__ import annotations

PAPER = "van de Meent, Paige and Wood 2014, Tempering by Subsampling"

METHODS = ("inner", "stt", "tt", "spt", "pt")
"""In the order of the columns of tables 1 and 2."""
RUN_TIME = {
    "gaussian": {"spt": 3.51, "stt": 5.65, "pt": 7.48, "tt": 12.94},
    "gp": {"spt": 1.73, "stt": 2.35, "pt": 6.03, "tt": 9.19},
}
"""Run time over that of HMC (figure 1): D = 50; D = 18 and N = 1024."""

Row = tuple[tuple[float, bool], ...]


def _row(text: str) -> Row:
    """Return (value, whether it is starred) of every column."""
    return tuple((float(cell.rstrip("*")), cell.endswith("*")) for cell in text.split())


TABLES: dict[tuple[str, str], dict[int, Row]] = {
    ("gp", "HMC"): {
        5: _row("0.1378 0.1828 0.0445 0.0682 0.0189"),
        10: _row("0.0027 0.0053 0.0022 0.0011 0.0002*"),
        15: _row("0.0011 0.0012 0.0013 0.0002* 0.0003"),
        20: _row("0.0007 0.0033 0.0016 0.0009 0.0001*"),
        25: _row("0.0010 0.0016 0.0011 0.0003* 0.0003*"),
    },
    ("gp", "MH"): {
        5: _row("0.0279 0.0503 0.0495 0.0262 0.0204"),
        10: _row("0.0028 0.0151 0.0065 0.0005 0.0003"),
        15: _row("0.0021 0.0038 0.0035 0.0005 0.0002"),
        20: _row("0.0032 0.0026 0.0021 0.0009 0.0002"),
    },
    ("gaussian", "HMC"): {
        5: _row("0.7915 0.1380 0.0681 0.2201 0.1089"),
        10: _row("0.3334 0.1361 0.0652 0.2172 0.1119"),
        50: _row("0.0537 0.0363 0.0257 0.0142 0.0091"),
        100: _row("0.0101 0.0145 0.0101 0.0026 0.0020"),
    },
    ("gaussian", "MH"): {
        5: _row("0.9949 0.4903 3.1858 0.0344 0.1665"),
        10: _row("0.1445 0.2664 0.7232 0.0148 0.0390"),
        50: _row("0.0221 0.0579 0.0524 0.0012 0.0018"),
        100: _row("0.0102 0.0240 0.0221 0.0008* 0.0010*"),
    },
}
"""Median effective draws per second by model and inner sampler, then |theta|."""
ROWS = {("gp", "HMC"): 512, ("gp", "MH"): 512, ("gaussian", "HMC"): 1024, ("gaussian", "MH"): 256}
"""N of the tables."""
FIGURE_3 = (
    ("gaussian", "HMC", 50, (64, 128, 256, 512, 1024, 2048)),
    ("gp", "MH", 20, (64, 128, 256, 512, 1024)),
    ("gp", "HMC", 15, (64, 128, 256, 512, 1024)),
)
"""Panels: model, inner sampler, |theta|, N."""
FIGURE_2 = ("gp", "HMC", 20, 512)
