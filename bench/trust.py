"""The battery of trust at full counts, and the table of ``docs/measurements/trust.md``.

    python bench/trust.py [--quick] [--checks 17 20 42] [--write]

Runs the tests that carry the numbers of ``tests/checks_of_trust.py`` (all, or those asked for),
one after another, and reads pytest's JUnit file: outcome, seconds, and what the tests recorded as
``figure`` and ``caught``. ``--quick`` leaves the counts at those of ``make test``. ``--write``
renews the lines of what has run in ``results/trust.json``, and the page from all lines there. Ends
with status 1 if a test failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from page import machine, publish

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from checks_of_trust import CHECKS, MOST_IMPORTANT, WITHOUT_TEST, marked  # noqa: E402

RESULTS = Path(__file__).resolve().parent / "results" / "trust.json"
UNPROVEN = ("failed", "skipped")


def run_tests(tests: list[str], quick: bool) -> dict[str, list[dict[str, Any]]]:
    """Run tests, and return what is known of each of their cases, by ``path::name``."""
    with tempfile.TemporaryDirectory() as name:
        report = Path(name) / "junit.xml"
        words = ["-q", "-o", "junit_family=xunit1", f"--junitxml={report}", "--timeout=3600"]
        env = os.environ | ({} if quick else {"STREAMMC_TRUST": "full"})
        paths = [f"tests/{test}" for test in tests]
        subprocess.run([sys.executable, "-m", "pytest", *words, *paths], cwd=ROOT, env=env)
        cases = list(ET.parse(report).iter("testcase"))
    found: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        test = f"{case.attrib['file'].removeprefix('tests/')}::{case.attrib['name']}"
        outcomes = [each.tag for each in case if each.tag in ("failure", "error", "skipped")]
        outcome = {"skipped": "skipped"}.get(outcomes[0], "failed") if outcomes else "passed"
        reasons = [each.attrib.get("message", "") for each in case if each.tag == "skipped"]
        said = [(each.attrib["name"], each.attrib["value"]) for each in case.iter("property")]
        found.setdefault(test.partition("[")[0], []).append(
            {
                "outcome": outcome,
                "seconds": round(float(case.attrib["time"]), 1),
                "figures": [value for key, value in said if key == "figure"],
                "caught": [value for key, value in said if key == "caught"],
                "reason": reasons[0] if reasons else "",
            }
        )
    return found


def run_checks(numbers: list[int], quick: bool) -> dict[str, Any]:
    """Run the tests of the checks ``numbers``, and return their results."""
    tests = {number: marked()[number] for number in numbers}
    found = run_tests(sorted({test for each in tests.values() for test in each}), quick)
    now = {"machine": machine(), "counts": "quick" if quick else "full"}
    return {
        str(number): now | {"tests": {test: found.get(test, []) for test in tests[number]}}
        for number in numbers
    }


def verdict(cases: list[dict[str, Any]]) -> str:
    """Return what became of the cases of a check."""
    outcomes = [case["outcome"] for case in cases]
    counts = {what: outcomes.count(what) for what in ("passed", *UNPROVEN)}
    said = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"**{said}**" if counts["failed"] or not counts["passed"] else said


def row(number: int, results: dict[str, Any], most: tuple[int | None, int | None]) -> str:
    """Return the line of a check, with the first ``most`` figures and faults."""
    star = " ★" if number in MOST_IMPORTANT else ""
    head = f"| {number}{star} | {CHECKS[number]} "
    if number in WITHOUT_TEST:
        return f"{head}| not tested: {WITHOUT_TEST[number]} | | |"
    if str(number) not in results:
        return f"{head}| not run | | |"
    cases = [case for each in results[str(number)]["tests"].values() for case in each]
    figures, caught = (
        shortened(list(dict.fromkeys(line for case in cases for line in case[what])), count)
        for what, count in zip(("figures", "caught"), most, strict=True)
    )
    reasons = "; ".join(dict.fromkeys(case["reason"] for case in cases if case["reason"]))
    figures += f" (skipped: {reasons})" if reasons else ""
    cells = (verdict(cases), figures, caught)
    return head + "".join(f"| {cell.replace('|', '/')} " for cell in cells) + "|"


def shortened(found: list[str], most: int | None) -> str:
    """Return the first ``most`` texts, and how many there are besides."""
    shown = found if most is None else found[:most]
    left = f"{len(found) - len(shown)} more" if shown and len(shown) < len(found) else ""
    return "; ".join([*shown, *[left][: bool(left)]])


def lines(results: dict[str, Any]) -> list[str]:
    """Return the table of the page, and when and where it was measured."""
    numbers: dict[str, list[int]] = {}
    for number in CHECKS:
        if result := results.get(str(number)):
            when = f"{result['machine']}, {result['counts']} counts"
            numbers.setdefault(when, []).append(number)
    often = max(numbers, key=lambda when: len(numbers[when]), default="")
    others = [f"{when}: {', '.join(map(str, of))}" for when, of in numbers.items() if when != often]
    return [
        "| | check | tests | figures | smallest faults that were caught |",
        "|---|---|---|---|---|",
        *(row(number, results, (int(number in MOST_IMPORTANT), 1)) for number in CHECKS),
        "",
        f"{'; '.join([often, *others])}.",
    ]


def main() -> None:
    """Run, print, and if asked publish."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--checks", type=int, nargs="*", default=sorted(marked()))
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    new = run_checks(asked.checks, asked.quick)
    # Read now: checks may run beside each other.
    results = (json.loads(RESULTS.read_text()) if RESULTS.exists() else {}) | new
    print("\n".join(row(number, results, (None, None)) for number in asked.checks))
    if asked.write:
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        publish("trust.md", "trust", lines(results))
    cases = [
        case
        for number in asked.checks
        for each in results[str(number)]["tests"].values()
        for case in each
    ]
    if not cases or any(case["outcome"] == "failed" for case in cases):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
