"""Commands of the how-to pages, run in their order on tables with the columns that they name."""

from __future__ import annotations

import os
import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from command_line import streammc
from shown_output import blocks, printed, shell_commands

ROOT = Path(__file__).resolve().parents[2]
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
QUICK = {"STREAMMC_WARMUP": "200", "STREAMMC_CHAINS": "2"}
ELSEWHERE = re.compile(r"/new/place/|run-hmc run-ecs|--sampler sghmc")
"""Commands on places and runs that the page does not make, or of ten thousands of draws."""


def flights(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    distance = rng.gamma(2.0, 400.0, rows).round(1)
    carrier = rng.choice(["AA", "DL", *(f"C{i}" for i in range(10))], rows)
    effect = 0.5 * (carrier == "AA") - 0.5 * (carrier == "DL")
    late = rng.uniform(size=rows) < 1.0 / (1.0 + np.exp(1.0 - 3e-4 * distance - effect))
    return pa.table(
        {
            "late": late.astype(np.int8),
            "distance": distance,
            "hour": rng.uniform(5.0, 23.0, rows).round(2),
            "time": rng.uniform(0.0, 24.0, rows).round(2),
            "origin": rng.choice(["ATL", "JFK", "ORD"], rows),
            "month": rng.choice(["jan", "jun", "sep"], rows),
            "carrier": carrier,
            "flight": [f"F{i}" for i in range(rows)],
        }
    )


def ratings(rows: int) -> pa.Table:
    rng = np.random.default_rng(4)
    user, item = rng.integers(0, 400, rows), rng.integers(0, 320, rows)
    user[:400], item[:320] = np.arange(400), np.arange(320)
    rating = 3.5 + rng.normal(size=400)[user] + 0.7 * rng.normal(size=320)[item]
    return pa.table(
        {
            "rating": rating + rng.normal(size=rows),
            "age": rng.integers(18, 80, rows),
            "user": user,
            "item": [f"film {k}" for k in item],
        }
    )


def tables(folder: Path) -> None:
    """Write the tables that the pages name."""
    for i, name in enumerate(("flights", "train", "test", "new-flights", "next-week")):
        table = flights(2_000, 1 if name == "flights" else 10 + i)
        pa_csv.write_csv(table, folder / f"{name}.csv")
    pq.write_table(flights(2_000, 1), folder / "flights.parquet")
    pa_csv.write_csv(ratings(4_000), folder / "ratings.csv")


STORE = "streammc ingest flights.csv flights.zarr --formula 'late ~ distance + C(origin)' --seed 1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "before"),
    [
        ("how-to/answers.md", []),
        ("how-to/choose-a-sampler.md", [STORE]),
        ("how-to/coming-from.md", []),
        ("how-to/from-a-file-to-an-answer.md", []),
        ("how-to/group-effects.md", []),
        ("how-to/mixed-models.md", []),
        ("how-to/predict.md", []),
        ("how-to/report.md", [STORE]),
        ("how-to/set-priors.md", [STORE]),
        ("how-to/use-a-formula.md", []),
    ],
)
def test_commands_of_the_page_run(
    page: str, before: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables(tmp_path)
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    lines = [line for line in shell_commands(text) if not ELSEWHERE.search(line)]
    assert lines
    if page == "how-to/use-a-formula.md":
        outputs = printed([*before, *lines], tmp_path, PATH, QUICK)
    else:
        outputs = printed_here([*before, *lines], tmp_path, monkeypatch)
    assert len(before) + len(lines) == sum(map(bool, outputs))
    if page == "how-to/answers.md":
        (shown,) = blocks(text, "")
        answers = next(out for line, out in zip(lines, outputs, strict=True) if "=100" in line)
        assert same_answers(shown.splitlines(), answers)
        assert not same_answers(shown.replace(" 0.0", " 0.1").splitlines(), answers)


def printed_here(
    lines: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[list[str]]:
    """Run commands in this process; return the stdout of each.

    As programs they import for two seconds each: those of one page, of the README and of the
    tutorial are.
    """
    monkeypatch.chdir(folder)
    for name, text in QUICK.items():
        monkeypatch.setenv(name, text)
    found = []
    for line in lines:
        words = shlex.split(line, comments=True)
        assert "streammc" == words[0]
        assert not {"|", ">", ";", "&&"} & {*words}, line  # for a shell alone
        done = streammc(*words[1:])
        assert 0 == done.code, (line, done.err)
        found.append(done.out.strip("\n").splitlines())
    return found


def same_answers(shown: list[str], found: list[str]) -> bool:
    """Whether rows agree: words are equal, numbers within 0.3 of their standard error.

    Quantiles of 1,000 independent draws have errors of 0.06 standard deviations.
    """
    rows = [[line.split() for line in lines[: len(shown)]] for lines in (shown, found)]
    at = rows[0][0].index("std_error") - len(rows[0][0])
    for first, second in zip(*rows, strict=True):
        if first[:-4] != second[:-4]:
            return False
        if first[at] != "std_error":
            a, b = (np.array(row[-4:], float) for row in (first, second))
            if (abs(a - b) > 0.3 * a[at]).any():
                return False
    return rows[0][0] == rows[1][0]


NEEDED = {
    "import statsmodels.formula.api as smf": ["statsmodels"],
    "from sklearn.linear_model import LogisticRegression": ["sklearn"],
    "from streammc.sklearn import BayesianClassifier": ["sklearn"],
    "from marginaleffects import avg_comparisons, avg_predictions, avg_slopes": [
        "marginaleffects",
        "statsmodels",
    ],
    "import arviz as az": ["arviz", "bambi"],
}
"""By the first line of a block of Python, the packages without which it is left out."""


@pytest.mark.filterwarnings("ignore")  # of other packages
def test_python_of_other_packages_and_of_this_one_runs_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {
        "flights": flights(2_000, 1).to_pandas(),
        "next_week": flights(2_000, 14).to_pandas(),
    }
    text = (ROOT / "docs/how-to/coming-from.md").read_text(encoding="utf-8")
    parts = blocks(text, "python")
    first = [part.splitlines()[0] for part in parts]
    assert {*NEEDED} <= {*first}
    for line, part in zip(first, parts, strict=True):
        if all(map(find_spec, NEEDED.get(line, []))):
            exec(compile(part, "coming-from.md", "exec"), known)
    assert "mixed" in known


@pytest.mark.slow
def test_commands_of_the_tutorial_run(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tutorial" / "first-posterior.md").read_text(encoding="utf-8")
    block = next(each for each in re.findall(r"(?:^    .*\n)+", text, re.M) if "data=" in each)
    lines = [line.strip() for line in block.splitlines()]
    assert "10,984" in "\n".join(printed(lines, tmp_path, PATH)[-1])


def test_a_command_that_fails_would_be_seen(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="not found"):
        printed(["no-such-command"], tmp_path, PATH)
