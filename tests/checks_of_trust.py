"""The checks of faults, clusters, jobs and secrets, by number; prints the tests of each.

A test carries the number that it meets as ``@pytest.mark.trust(28)``, and stands where its subject
is tested; tests/trust has those that need several parts of streammc. ``pytest -m trust`` runs all,
``python tests/checks_of_trust.py`` lists them. Numbers below 28 and those that are missing belong
to statistics, files and bad input, which the folders of these subjects test.
"""

from __future__ import annotations

import ast
import os
from collections import defaultdict
from pathlib import Path
from typing import Final

CHECKS: Final = {
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
    42: "stale lock, copied run, file system without locks",
    43: "resume with a changed job",
    44: "exit codes",
    45: "memory cgroup",
    46: "clock that jumps",
    47: "mean environments",
    48: "JSON of every failure",
    53: "names that lead out of a store",
    54: "secrets",
    55: "listening sockets",
    56: "TLS",
}
JOB: Final = ("--model", "logistic", "--seed", "1", "--chains", "2", "--warmup", "60", "--quiet")
"""Options of the job of these checks, but for its draws."""
TESTS: Final = Path(__file__).resolve().parent


def rounds(quick: int, full: int) -> int:
    """Return how often a fault is tried: ``full`` times if ``STREAMMC_TRUST`` is ``full``."""
    return full if os.environ.get("STREAMMC_TRUST") == "full" else quick


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
