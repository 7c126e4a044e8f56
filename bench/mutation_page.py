"""The page about planted faults: ``docs/explanation/mutations.md``."""

from __future__ import annotations

from collections import Counter
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


def lines(results: dict[str, Any]) -> list[str]:
    """Return the tables of the page."""
    mutants = results["mutants"]
    counts = Counter((package(each["path"]), judged(each)) for each in mutants)
    kinds = Counter((each["operator"], judged(each)) for each in mutants)
    rows = []
    for title, count, names in (
        ("package", counts, PACKAGES),
        ("change", kinds, sorted({kind for kind, _ in kinds})),
    ):
        rows += ["", f"| {title} | drawn | caught | without effect | survived |"]
        rows.append("|---|---|---|---|---|")
        for name in names:
            drawn = sum(n for (first, _), n in count.items() if first == name)
            caught, same = count[name, CAUGHT], count[name, SAME]
            rows.append(f"| {name} | {drawn} | {caught} | {same} | {drawn - caught - same} |")
    caught = sum(judged(each) == CAUGHT for each in mutants)
    same = sum(judged(each) == SAME for each in mutants)
    controls = [each["control"] for each in mutants if "control" in each]
    later = sum(each["key"] in TESTS for each in mutants)
    head = (
        f"{len(mutants)} changes, seed {results['seed']}: {caught} caught, {later} of them by a "
        f"test written for them; {same} without effect; {len(mutants) - caught - same} survived. "
        f"Without a change the same tests passed {controls.count('passed')} of {len(controls)} "
        f"times. {results['machine']}."
    )
    left = [each for each in mutants if judged(each) not in (CAUGHT, SAME)]
    shown = [each for each in mutants if judged(each) == SAME]
    return [
        head,
        *rows,
        *_listed("Survivors", left, lambda each: "no test notices it"),
        *_listed("Changes without effect", shown, lambda each: EQUIVALENT[each["key"]]),
        *_listed(
            "Changes that got a test",
            [each for each in mutants if each["key"] in TESTS],
            lambda each: f"`{TESTS[each['key']].partition('::')[2]}`",
        ),
    ]


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
