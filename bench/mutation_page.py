"""The page about planted faults: ``docs/measurements/mutations.md``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from mutation_tests import PACKAGES
from mutation_verdicts import EQUIVALENT, TESTS

CAUGHT, SURVIVED, ALIVE = "caught", "survived", "not caught as plain Python"
SAME = "without effect"


def package(path: str) -> str:
    """Return ``likelihood`` of ``streammc/likelihood/blocks.py``."""
    return path.split("/")[1]


def judged(result: dict[str, Any]) -> str:
    """Return the outcome, with what was found out later."""
    if result["outcome"] != CAUGHT and result["key"] in EQUIVALENT:
        return SAME
    return str(result["outcome"])


def _table(title: str, names: Iterable[str], found: list[tuple[str, str]]) -> list[str]:
    """Return a table of the outcomes by name; ``found`` are names with outcomes."""
    rows = ["", f"| {title} | tried | caught | without effect | survived | open |"]
    rows.append("|---|---|---|---|---|---|")
    for name in [*names, "all"]:
        count = Counter(what for first, what in found if name in (first, "all"))
        cells = [count[what] for what in (CAUGHT, SAME, SURVIVED, ALIVE)]
        rows.append(f"| {name} | {sum(cells)} | " + " | ".join(map(str, cells)) + " |")
    return rows


def lines(results: dict[str, Any]) -> list[str]:
    """Return the tables of the page."""
    mutants = [each for each in results["mutants"] if "outcome" in each]
    outcomes = [judged(each) for each in mutants]
    controls = [each["control"] for each in mutants if "control" in each]
    written = [each for each in mutants if each["key"] in TESTS and each["outcome"] == CAUGHT]
    head = (
        f"{len(mutants)} of {results['drawn']} drawn changes were tried, seed {results['seed']}: "
        f"{outcomes.count(CAUGHT)} caught, {len(written)} of them "
        f"by a test written or found for them; "
        f"{outcomes.count(SAME)} without effect; {outcomes.count(SURVIVED)} survived; "
        f"{outcomes.count(ALIVE)} open: not caught as plain Python, and not tried as compiled "
        f"code. Without a change the same tests passed {controls.count('passed')} of "
        f"{len(controls)} times. {results['gone']} of the lines have gone from the sources since "
        f"the draw, and keep their verdict. {results['machine']}."
    )
    left = [each for each in mutants if judged(each) in (SURVIVED, ALIVE)]
    shown = [each for each in mutants if judged(each) == SAME]
    paths = [package(each["path"]) for each in mutants]
    return [
        head,
        *_table("package", PACKAGES, list(zip(paths, outcomes, strict=True))),
        *_listed("Survived or open", left, _why_left),
        *_listed("Without effect", shown, lambda each: EQUIVALENT[each["key"]]),
    ]


def _why_left(result: dict[str, Any]) -> str:
    """Return what is known of a change that is not caught."""
    if result["outcome"] == SURVIVED:
        return "survived"
    return "open: plain Python alone ends with an error" if "as_python" in result else "open"


def _listed(title: str, mutants: list[dict[str, Any]], reason: Any) -> list[str]:
    if not mutants:
        return []
    rows = [
        f"| `{each['path']}` | `{_cell(each['before'])}` | `{_cell(each['after'])}` "
        f"| {reason(each)} |"
        for each in mutants
    ]
    return ["", f"### {title}", "", "| file | line | changed to | |", "|---|---|---|---|", *rows]


def _cell(line: str) -> str:
    return line.strip().replace("|", "\\|")
