"""Small posteriors of every family and sampler, each right, warned of, or refused.

Run as ``python bench/silent.py [--only NAME ...] [--few-rows] [--seeds S ...] [--jobs N]
[--json FILE] [--write]``. Every case of
``silent_cases*.py`` is sampled at automatic settings through ``streammc.sample`` and compared with
a reference of its own (``silent_references.py``). Means and sds have to lie within the larger of
0.1 sd and 4.5 Monte Carlo standard errors, and the tails beyond the 5 % and 95 % quantiles
likewise; otherwise a warning that bears on it, or a refusal with an exit code, has to say so. Ends
with status 1 if a run is silently wrong or dies of a defect. Runs that ``--json`` holds already are
not made again. ``--write`` renews ``docs/measurements/silent.md`` with the table of the first seed
and the counts of all, and ``bench/results/silent.json``.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import os
import signal
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results" / "silent.json"
FEWEST_RUNS = 3
"""Runs of a sampler before a line in all of them is taken for one that it always prints."""
LINE = 90
LIMIT = 900
"""Seconds after which a run counts as crashed."""
Outcome = dict[str, Any]


def sample_case(name: str, seed: int, folder: Path) -> Any:
    """Sample one case and return the tree of its run."""
    from silent_cases import cases, data_of

    from streammc import from_arrays, models, priors, sample, samplers

    case = cases()[name]
    options = dict(case.model)
    if case.prior is not None:
        texts = {k: text for k, text in case.prior.items() if not k.startswith("weight")}
        options["prior"] = {k: priors.parse(text) for k, text in texts.items()}
    model = getattr(models, case.family.replace("-", "_"))(**options)
    sampler = None
    if case.sampler != "auto":
        sampler = getattr(samplers, case.sampler.replace("-", "_"))()
    store = from_arrays(**data_of(name, case))
    return sample(store, model, sampler=sampler, seed=seed, path=folder / "run", **case.run)


def outcome(name: str, seed: int) -> Outcome:
    """Return what a run of one case did beside its reference, as JSON."""
    from silent_cases import cases, reference_for
    from silent_references import ReferenceFailure
    from silent_verdict import allowance_of, deviations, draws_of

    from streammc import facts
    from streammc.errors import StreammcError

    warnings.simplefilter("ignore")
    case = cases()[name]
    found: Outcome = {"name": name, "seed": seed, "warnings": [], "deviations": [], "error": ""}
    try:
        reference = reference_for(name, case)
    except ReferenceFailure as error:
        if not name.startswith("few-rows-"):
            raise
        return found | {"error": str(error), "exit_code": 0, "seconds": 0.0, "reference": "none"}
    found["reference"] = "none: improper" if reference is None else reference.method
    started = time.perf_counter()
    signal.signal(signal.SIGALRM, _too_long)
    with TemporaryDirectory() as folder:
        try:
            signal.alarm(LIMIT)
            tree = sample_case(name, seed, Path(folder))
        except StreammcError as error:
            found |= {"error": str(error), "exit_code": error.exit_code}
        except Exception as error:  # a defect of any kind is a finding
            found |= {"error": f"{type(error).__name__}: {error}", "exit_code": 70}
        else:
            summary = facts(tree)["summary"]
            found["warnings"] = list(summary["warnings"])
            found["sampler"] = summary["sampling"]["sampler"]
            if reference is not None:
                draws, sign = draws_of(tree, reference.labels, case.extra)
                allowed = allowance_of(summary)
                every = deviations(reference, draws, sign, case.tolerance, allowed)
                found["deviations"] = [vars(each) for each in every]
        finally:
            signal.alarm(0)
    return found | {"seconds": time.perf_counter() - started}


def _too_long(*_: object) -> None:
    raise TimeoutError(f"not finished after {LIMIT} s")


def standing_lines(outcomes: list[Outcome]) -> dict[str, frozenset[str]]:
    """Return by sampler the skeletons of lines that each of its runs prints, right or wrong."""
    from silent_verdict import skeleton

    runs: dict[str, list[set[str]]] = collections.defaultdict(list)
    for each in outcomes:
        if "sampler" in each:
            runs[each["sampler"]].append({skeleton(line) for line in each["warnings"]})
    return {
        sampler: frozenset(set.intersection(*lines)) if len(lines) >= FEWEST_RUNS else frozenset()
        for sampler, lines in runs.items()
    }


def verdict_of(found: Outcome, standing: frozenset[str]) -> Any:
    """Return the verdict on one outcome."""
    from silent_verdict import Deviation, Verdict, judge, kind_of_line

    if found["error"]:
        word = {70: "crashed", 0: "unknown"}.get(found["exit_code"], "refused")
        return Verdict(word, f"{found['exit_code']}: {found['error']}")
    if not found["deviations"]:
        bearing = [line for line in found["warnings"] if kind_of_line(line)]
        return Verdict("warned" if bearing else "SILENT", bearing[0] if bearing else "improper")
    every = [Deviation(**each) for each in found["deviations"]]
    return judge(every, found["warnings"], standing)


def shortened(line: str) -> str:
    """Return a line that fits into a cell."""
    line = line.replace("|", "\\|")
    return line if len(line) <= LINE else line[: LINE - 3].rstrip() + "..."


def table(outcomes: list[Outcome]) -> tuple[list[str], collections.Counter[str]]:
    """Return the rows of the table and how often each verdict was given."""
    from silent_cases import cases

    standing, known = standing_lines(outcomes), cases()
    head = (
        "case", "what is hard", "family", "sampler", "verdict", "worst statistic", "error",
        "bound", "warning or message", "s",
    )  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    words: collections.Counter[str] = collections.Counter()
    order = list(known)
    for found in sorted(outcomes, key=lambda each: order.index(each["name"])):
        case = known[found["name"]]
        verdict = verdict_of(found, standing.get(found.get("sampler", ""), frozenset()))
        words[verdict.word] += 1
        ran = found.get("sampler", case.sampler)
        worst = verdict.worst
        number = (
            "" if worst is None else f"{worst.error:.2g}" if math.isfinite(worst.error) else "-"
        )
        cells = (
            found["name"], case.kind, case.family,
            ran if ran == case.sampler else f"{case.sampler}: {ran}", verdict.word,
            "" if worst is None else f"{worst.statistic} of {worst.label}", number,
            "" if worst is None else f"{worst.bound:.2g}", shortened(verdict.line),
            f"{found['seconds']:.0f}",
        )  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return lines, words


def main() -> None:
    """Run the cases that are asked for, print the table, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=None, metavar="NAME")
    parser.add_argument("--few-rows", action="store_true", help="tables of 4 to 12 rows alone")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--json", type=Path, help="keep what was found, and go on from there")
    arguments = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of the workers
    from silent_cases import cases

    names = [name for name in cases() if name.startswith("few-rows-") == arguments.few_rows]
    names = names if arguments.only is None else arguments.only
    if unknown := set(names) - set(cases()):
        parser.error(f"no case is named {', '.join(sorted(unknown))}: see bench/silent_cases*.py")
    kept = arguments.json if arguments.json and arguments.json.exists() else None
    outcomes: list[Outcome] = json.loads(kept.read_text()) if kept else []
    made = {(each["name"], each["seed"]) for each in outcomes}
    wanted = [(name, seed) for seed in arguments.seeds for name in names]
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(outcome, *each) for each in wanted if each not in made]
        for done in as_completed(waiting):
            found = done.result()
            outcomes.append(found)
            verdict = verdict_of(found, frozenset())
            worst = verdict.worst
            size = "" if worst is None else f" {worst.statistic} of {worst.label} {worst.error:.2g}"
            said = f"{verdict.word}{size} {shortened(verdict.line)}"
            print(f"{found['name']}, seed {found['seed']}: {said}", file=sys.stderr, flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(outcomes, indent=1) + "\n")
    outcomes = [each for each in outcomes if (each["name"], each["seed"]) in wanted]
    wrong, counted, tables = 0, [], []
    for seed in arguments.seeds:
        lines, words = table([each for each in outcomes if each["seed"] == seed])
        wrong += words["SILENT"] + words["crashed"]
        counts = ", ".join(f"{n} {word}" for word, n in words.most_common())
        cases_of_it, silent = words.total(), words["SILENT"]
        counted.append(f"{cases_of_it} cases, seed {seed}: {counts}; {silent} silent.")
        tables.append(lines)
        print("\n".join([*lines, "", counted[-1], ""]))
    if arguments.write:
        from page import machine, publish

        said = ["", *counted, "", f"{machine()}."]
        if arguments.few_rows:
            wrong_rows = [line for line in tables[0] if "| right |" not in line]
            publish("silent.md", "few-rows", [*wrong_rows, *said])
            raise SystemExit(1 if wrong else 0)
        publish("silent.md", "silent", [*tables[0], *said])
        RESULTS.write_text(json.dumps(outcomes, indent=1) + "\n")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
