"""Cases of the samplers that look at some rows, and of temperatures, on regressions."""

from __future__ import annotations

import math
from typing import Any

from silent_cases import Case
from silent_cases_counts import WIDE, binary, poisson_counts

ROWS = 2000
MINT_ROWS = 200
"""A tenth of the rows, as ``mint`` takes by itself; it then samples at n / sqrt(m)."""


def on_rows(sampler: str, kind: str = "every sampler", **options: Any) -> Case:
    return Case(kind, "logistic", sampler, binary(ROWS, -0.5), WIDE, **options)


SAMPLERS: dict[str, Case] = {
    "logistic-300-hmc-ecs": Case("n = 300", "logistic", "hmc-ecs", binary(300), WIDE),
    "logistic-signed": on_rows("hmc-ecs-signed"),
    "logistic-laplace": on_rows("laplace"),
    "logistic-smh": on_rows("smh"),
    "logistic-mh": Case("every sampler", "logistic", "mh", binary(300), WIDE),
    "logistic-mh-minibatch": on_rows("mh-minibatch"),
    "logistic-mh-fixed": on_rows("mh-fixed"),
    "logistic-mh-austere": on_rows("mh-austere"),
    "logistic-mh-sublhd": on_rows("mh-sublhd"),
    "logistic-mint": on_rows("mint", heat=ROWS / math.sqrt(MINT_ROWS)),
    "logistic-sgld": on_rows("sgld"),
    "poisson-sghmc": Case(
        "every sampler", "poisson", "sghmc", poisson_counts(3.0, ROWS), {"*": "normal(0, 10)"}
    ),
    "logistic-temperature-hmc": on_rows("hmc", "temperature 2", run={"temperature": 2.0}),
    "logistic-temperature-mh": Case(
        "temperature 2", "logistic", "mh", binary(300), WIDE, run={"temperature": 2.0}
    ),
    "logistic-pt": Case("one mode", "logistic", "pt", binary(60), WIDE),
}
