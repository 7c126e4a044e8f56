"""The checks that streammc's promises rest on, by number: those of docs/measurements/trust.md.

A test carries the number that it meets as ``@pytest.mark.trust(28)``, and stands where its subject
is tested; tests/trust has those that need several parts of streammc. A test states its figure with
pytest's ``record_property("figure", "50 of 50 kills resumed with the same digest")``, and a
negative control the fault that was caught: ``record_property("caught", "one flipped bit")``.
What does not vary from run to run stands in the mark: ``@pytest.mark.trust(28, caught="...")``.
``pytest -m trust`` runs all at small counts; ``make trust`` at full counts, and writes the page.
``python tests/checks_of_trust.py`` lists the tests.
"""

from __future__ import annotations

import ast
import os
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Final

CHECKS: Final = {
    1: "exact posteriors of conjugate models are hit",
    2: "every sampler leaves the target that it states invariant",
    3: "prior, simulator and likelihood of the models agree",
    4: "simulation-based calibration, end to end",
    5: "the pseudo-marginal kernel is exact",
    6: "the block-Poisson estimator is unbiased",
    7: "negative estimates carry their sign",
    8: "the target is right at any noise of the estimate",
    9: "a chain on subsamples has the posterior of all rows",
    10: "densities and derivatives are right",
    11: "sums of one pass are exact, in any order",
    12: "threads, processes and schedulers change no bit",
    13: "random streams do not depend on other chains, and go on after a checkpoint",
    14: "R-hat, ESS and verdicts are honest",
    15: "posteriors agree with those of other programs",
    16: "seeded bugs are caught",
    17: "SIGKILL at any instant",
    18: "SIGKILL at every call that changes the disk",
    19: "power loss",
    20: "flipped bits and cut files",
    21: "missing and swapped objects",
    22: "debris of other programs",
    23: "readers see committed states alone",
    24: "any history of operations",
    25: "full disk",
    26: "input and output errors",
    27: "formats of the past and of the future",
    28: "object store that fails, stalls, cuts bodies and loses answers",
    29: "two writers of one store",
    30: "worker that dies, task that runs twice",
    31: "block that kills its workers",
    32: "worker out of memory",
    33: "scheduler that dies",
    34: "worker that is stuck or cannot be reached",
    35: "worker of other versions",
    36: "memory of a pass at 1, 8 and 64 times the rows",
    37: "network with delay and loss",
    38: "processes, ports and files left behind",
    39: "SIGTERM at any instant",
    40: "other signals",
    41: "the same command again, and many copies at once",
    42: "stale lock, copied run, file system without locks",
    43: "resume with a changed job",
    44: "exit codes",
    45: "memory cgroup",
    46: "clock that jumps",
    47: "mean environments",
    48: "JSON of every failure",
    49: "a hundred thousand commits",
    50: "bad input",
    51: "data never run as code",
    52: "files that ask for too much memory",
    53: "names that lead out of a store",
    54: "secrets",
    55: "listening sockets",
    56: "TLS",
    57: "cache of compiled code",
    58: "broken models, and modules beside the data",
    59: "packages that streammc is installed with",
}
WITHOUT_TEST: Final[dict[int, str]] = {}
"""Checks that no test meets, with the reason, which the page states."""
MOST_IMPORTANT: Final = frozenset({1, 2, 5, 6, 11, 16, 17, 19, 20, 21, 30, 39, 41, 50, 51})
"""Each of these has a negative control: a test that states what it caught."""
JOB: Final = ("--model", "logistic", "--seed", "1", "--chains", "2", "--warmup", "60", "--quiet")
"""Options of the job of these checks, but for its draws."""
TESTS: Final = Path(__file__).resolve().parent


def rounds(quick: int, full: int) -> int:
    """Return how often a fault is tried: ``full`` times if ``STREAMMC_TRUST`` is ``full``."""
    return full if os.environ.get("STREAMMC_TRUST") == "full" else quick


@cache
def marked() -> dict[int, list[str]]:
    """Return the tests by the number of their check, as ``path::name``."""
    found = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.trust(" not in text:
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                for number in _numbers(node):
                    found[number].append(f"{path.relative_to(TESTS)}::{node.name}")
    return dict(found)


def _numbers(function: ast.FunctionDef) -> list[int]:
    """Return the arguments of the ``trust`` marks of a function."""
    calls = [each for each in function.decorator_list if isinstance(each, ast.Call)]
    trusted = [each for each in calls if ast.unparse(each.func) == "pytest.mark.trust"]
    return [int(ast.literal_eval(word)) for each in trusted for word in each.args]


if __name__ == "__main__":
    tests = marked()
    for number, subject in CHECKS.items():
        print(f"{number} {subject}")
        for test in tests.get(number, ["none"]):
            print(f"     {test}")
