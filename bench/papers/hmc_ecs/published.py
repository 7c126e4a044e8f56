"""What the paper prints in tables 1 to 4 and in its text."""

from __future__ import annotations

from typing import Any

SOURCE = "Dang, Quiroz, Kohn, Tran and Villani 2019, JMLR 20(100)"
RCT: dict[str, dict[str, tuple[float, float, float]]] = {
    "higgs": {
        "HMC-ECS, signed": (0.8, 1.15, 1.95),
        "SG-HMC": (2.43, 2.97, 4.08),
        "SGLD": (3.58, 12.46, 326.80),
    },
    "bankruptcy": {
        "HMC-ECS, signed": (1.2, 1.6, 2.6),
        "SG-HMC, L = 60": (6.8, 9.5, 682.3),
        "SG-HMC, L = 7": (48.6, 100.2, 246.7),
        "SGLD": (53.9, 230.1, 2784.2),
    },
}
"""Smallest, median and largest of tables 1 and 3."""
EFFICIENCIES: dict[str, dict[str, dict[str, Any]]] = {
    "higgs": {
        "HMC-ECS, perturbed": {
            "alpha_theta": 0.980, "alpha_u": 1.0, "L": 6, "IF": 2.185, "ESS": 927,
            "tau": None, "percent": 0.012,
        },
        "HMC-ECS, signed": {
            "alpha_theta": 0.979, "alpha_u": 0.993, "L": 6, "IF": 2.192, "ESS": 922,
            "tau": 1.0, "percent": 0.029,
        },
        "HMC": {"alpha_theta": 0.980, "IF": 2.084},
    },
    "bankruptcy": {
        "HMC-ECS, perturbed": {
            "alpha_theta": 0.967, "alpha_u": 0.994, "L": 6, "IF": 2.202, "ESS": 912,
            "tau": None, "percent": 0.021,
        },
        "HMC-ECS, signed": {
            "alpha_theta": 0.962, "alpha_u": 0.964, "L": 6, "IF": 2.31, "ESS": 871,
            "tau": 1.0, "percent": 0.126,
        },
        "HMC": {"alpha_theta": 0.966, "IF": 2.195},
    },
}  # fmt: skip
"""Tables 2 and 4."""
OVER_HMC: dict[str, dict[str, float]] = {
    "higgs": {"HMC-ECS, perturbed": 642.8, "HMC-ECS, signed": 554.1},
    "bankruptcy": {"HMC-ECS, perturbed": 478.7, "HMC-ECS, signed": 311.5},
}
"""How many times as expensive full-data HMC is."""
SIZES: dict[str, dict[str, Any]] = {
    "higgs": {"n": 10_500_000, "first": 0.0, "HMC-ECS, perturbed": 1300, "HMC-ECS, signed": 3000},
    "bankruptcy": {
        "n": 4_748_089, "first": 7.0 * 100 * 62_000, "HMC-ECS, perturbed": 1000,
        "HMC-ECS, signed": 6000,
    },
}  # fmt: skip
"""Rows, those of the first stage, and those of an evaluation."""
