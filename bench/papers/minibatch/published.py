"""What Seita et al. 2017 print in tables, figures and text."""

from __future__ import annotations

SEITA = "Seita, Pan, Chen and Canny 2017, An Efficient Minibatch Acceptance Test"

MINIBATCH, SUBLHD = "mh-minibatch", "mh-sublhd"
AUSTERE_C, AUSTERE_NC = "mh-austere (C)", "mh-austere (NC)"
METHODS = (MINIBATCH, AUSTERE_NC, AUSTERE_C, SUBLHD)

Pair = tuple[float, float]

TABLE_1: dict[str, Pair] = {
    MINIBATCH: (182.3, 11.4),
    AUSTERE_C: (13540.5, 1521.4),
    SUBLHD: (65758.9, 3222.6),
}
"""Mean minibatch and its standard deviation over ten trials: the mixture."""
TEXT_1: dict[str, float] = {MINIBATCH: 172.0, AUSTERE_C: 12562.0, SUBLHD: 67508.0}
"""Averages of figure 2, in the text of section 6.1."""

TABLE_2: dict[str, dict[str, Pair]] = {
    "MNIST-13k": {
        MINIBATCH: (125.4, 9.2),
        AUSTERE_NC: (973.8, 49.8),
        AUSTERE_C: (1924.3, 52.4),
        SUBLHD: (10783.4, 78.9),
    },
    "MNIST-100k": {
        MINIBATCH: (216.5, 7.9),
        AUSTERE_NC: (1098.3, 44.9),
        AUSTERE_C: (2795.6, 364.0),
        SUBLHD: (14977.3, 582.0),
    },
}

LAMBDAS = (100.0, 10.0, 1.0, 0.1, 0.01)
SIGMAS = (0.8, 0.9, 1.0, 1.1)
TABLE_3: dict[int, dict[float, tuple[float, ...]]] = {
    2000: {
        0.8: (2.6e-3, 4.0e-4, 6.7e-5, 1.4e-5, 5.0e-6),
        0.9: (3.3e-3, 6.4e-4, 1.6e-4, 1.3e-4, 2.7e-4),
        1.0: (4.4e-3, 1.3e-3, 1.1e-3, 2.0e-3, 3.6e-3),
        1.1: (6.8e-3, 4.6e-3, 7.5e-3, 1.3e-2, 2.4e-2),
    },
    4000: {
        0.8: (8.3e-4, 1.3e-4, 2.5e-5, 6.7e-6, 7.4e-6),
        0.9: (1.2e-3, 2.6e-4, 1.0e-4, 2.0e-4, 3.9e-4),
        1.0: (1.9e-3, 8.9e-4, 1.6e-3, 2.8e-3, 5.2e-3),
        1.1: (4.3e-3, 6.0e-3, 1.0e-2, 1.2e-2, 3.5e-2),
    },
}
"""L-infinity errors by N and sigma, in the order of ``LAMBDAS``."""

TABLE_4: dict[str, dict[str, Pair]] = {
    "eq. (40)": {
        MINIBATCH: (-1306.2, 20.7),
        AUSTERE_C: (-1619.6, 25.3),
        SUBLHD: (-1301.5, 44.4),
    },
    "chi-squared": {
        MINIBATCH: (5706.8, 2271.5),
        AUSTERE_C: (10501.3, 2076.5),
        SUBLHD: (3711.7, 1182.4),
    },
}

FIGURE_6: dict[float, float | None] = {0.005: 116.1, 0.01: 216.5, 0.05: 2215.6}
"""Mean minibatch by step size on MNIST-100k; 0.01 is that of table 2."""
