"""Run every case, check every message, and say which errors no case provokes."""

from __future__ import annotations

import argparse
import sys

from bench.messages.check import run_areas, uncovered
from bench.messages.page import write


def _slow_case(case: str, seconds: float) -> None:
    if seconds > 3.0:
        print(f"{seconds:.0f} s: {case}", file=sys.stderr, flush=True)


def main(words: list[str] | None = None) -> int:
    """Run the cases and return 1 if a message or a site fails the check."""
    parser = argparse.ArgumentParser(prog="python -m bench.messages", description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="renew docs/reference/messages.md and messages/"
    )
    parser.add_argument("--only", nargs="*", help="areas to run; sites are then not checked")
    parser.add_argument("--verbose", action="store_true", help="print every message")
    asked = parser.parse_args(words)
    areas = run_areas(asked.only, _slow_case)
    failed = 0
    for area, outcomes in areas.items():
        for each in outcomes:
            if asked.verbose:
                print(f"{each.kind:<14} {each.case}\n               {each.message}")
            if each.faults:
                failed += 1
                print(f"FAIL {area}: {each.case}\n  {each.kind}: {each.message}")
                print(f"  {'; '.join(each.faults)}")
    print(f"{sum(map(len, areas.values()))} cases, {failed} failed")
    if asked.only:
        return bool(failed)
    left = uncovered([each for outcomes in areas.values() for each in outcomes])
    for line in left:
        print(line)
    print(f"{len(left)} errors without a case or a reason")
    if asked.write:
        write(areas)
    return bool(failed or left)


if __name__ == "__main__":
    sys.exit(main())
