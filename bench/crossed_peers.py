"""Two factors that cross: streammc beside lme4, gpboost, NumPyro and statsmodels.

    python bench/crossed_peers.py [--write] [--only N ...] [--with NAME ...] [--peer PYTHON]

The tables are those of ``crossed.py``, of 1e5 and 1e6 rows. PYTHON has the peers that are Python
packages, and pyarrow; lme4 and data.table are those of ``Rscript``. What is not installed is left
out. Each fit is a process of its own and has eight minutes of CPU time, which other work on the
machine does not change much. What was measured is added to ``results/crossed-peers.json``, and
``--write`` puts all of it into docs/measurements/crossed.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from crossed import Case, made, sampled
from page import machine, publish, short

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "crossed-peers.json"
LIMIT = 480
"""CPU seconds of a process."""
LATE = f"not in {LIMIT} CPU s"
CASES = [
    Case("gaussian", 100_000, 2_000, 800, 300, 60),
    Case("logistic", 100_000, 2_000, 800, 600, 100),
    Case("gaussian", 1_000_000, 20_000, 8_000, 300, 60),
    Case("logistic", 1_000_000, 20_000, 8_000, 250, 50),
]
NUTS = {"warmup": 300, "draws": 200}
GIVES = {
    "streammc": "posterior",
    "lme4": "REML",
    "lme4, nAGQ=0": "penalised likelihood at the mode of all",
    "lme4, nAGQ=1": "maximum likelihood, Laplace",
    "gpboost": "maximum likelihood; of 0/1 Laplace",
    "NUTS, centred": "posterior",
    "NUTS, non-centred": "posterior",
    "statsmodels": "mean-field approximation",
}


def commands(case: Case, python: str) -> dict[str, list[str]]:
    """Return the command of each program that has such a model."""
    lme4 = ["Rscript", str(HERE / "peer_crossed.R"), "t.csv", case.family]
    peer = [python, str(HERE / "peer_crossed.py"), "t.parquet", case.family]
    nuts = {
        f"NUTS, {word}": [*peer, "numpyro", json.dumps(NUTS | {"centred": word == "centred"})]
        for word in ("centred", "non-centred")
    }
    own = {"streammc": [sys.executable, __file__, "--step", str(CASES.index(case))]}
    if case.family == "gaussian":
        return own | {"gpboost": [*peer, "gpboost"], "lme4": [*lme4, "1"]} | nuts
    both = {f"lme4, nAGQ={n}": [*lme4, str(n)] for n in (0, 1)}
    return (
        own | {"gpboost": [*peer, "gpboost"], **both, "statsmodels": [*peer, "statsmodels"]} | nuts
    )


def measured(command: list[str], folder: str) -> dict[str, Any]:
    """Return what a process prints last, its memory and CPU time; without, why it ended."""
    limited = ["prlimit", f"--cpu={LIMIT}", *command]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        process = subprocess.Popen(limited, cwd=folder, stdout=out, stderr=error)
        _, status, usage = os.wait4(process.pid, 0)
        out.seek(0)
        error.seek(0)
        printed, said = out.read().splitlines(), error.read().strip()[-400:]
    cpu = usage.ru_utime + usage.ru_stime
    spent = {"peak_gb": usage.ru_maxrss / 1e6, "cpu_seconds": cpu}
    if status == 0:
        return json.loads(printed[-1]) | spent
    return {"ended": LATE if os.WIFSIGNALED(status) else said} | spent


def own_step(case: Case) -> dict[str, Any]:
    """Sample the store in the folder of this process; means and sds are those of the run."""
    import importlib.metadata

    from streammc.trace.run_directory import RunDirectory

    found = sampled(case, Path())
    table = RunDirectory.open(Path("run.zarr")).attributes["summary"]["parameters"]
    return found | {
        "found": {name: row["mean"] for name, row in table.items()},
        "sd": {name: row["sd"] for name, row in table.items()},
        "version": f"streammc {importlib.metadata.version('streammc')}",
    }


def lines(results: dict[str, Any]) -> list[str]:
    """Return the table."""
    found = [
        "| rows | program | gives | s of the fit | CPU s of the process | least ess | CPU s a draw "
        "| from the mean of streammc, sds | peak, GB |",
        "|" + "---|" * 9,
    ]
    for case in CASES:
        cases = results.get(f"{case.family} {case.rows}", {})
        for name, row in cases.items():
            cells = [f"`{case.family}`, {case.rows:,}", name, GIVES[name]]
            if "ended" in row:
                cells += [row["ended"], short(row["cpu_seconds"]), "", "", ""]
            else:
                ess = min(row["ess"].values()) if "ess" in row else None
                own, cpu = cases["streammc"], row["cpu_seconds"]
                away = max(
                    abs(row["found"][each] - mean) / own["sd"][each]
                    for each, mean in own["found"].items()
                )
                cells += [short(row["seconds"]), short(cpu)]
                cells += ["", ""] if ess is None else [short(ess), short(cpu / ess)]
                cells += ["" if name == "streammc" else short(away)]
            found.append(f"| {' | '.join([*cells, short(row['peak_gb'])])} |")
    versions = {row["version"] for cases in results.values() if isinstance(cases, dict)
                for row in cases.values() if "version" in row}  # fmt: skip
    return [f"{machine()}; {', '.join(sorted(versions))}.", "", *found]


def main() -> None:
    """Measure the cases, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", type=int, nargs="*", default=range(len(CASES)))
    parser.add_argument("--with", nargs="*", default=list(GIVES), dest="programs")
    parser.add_argument("--peer", default=sys.executable)
    parser.add_argument("--step", type=int)
    asked = parser.parse_args()
    if asked.step is not None:
        print(json.dumps(own_step(CASES[asked.step])))
        return
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for case in (CASES[number] for number in asked.only):
        import pyarrow.csv as csv
        import pyarrow.parquet as pq

        with tempfile.TemporaryDirectory(prefix="crossed-") as folder:
            made(case, Path(folder))
            csv.write_csv(pq.read_table(Path(folder) / "t.parquet"), Path(folder) / "t.csv")
            for name, command in commands(case, asked.peer).items():
                if name in asked.programs:
                    row = measured(command, folder) | {"load": os.getloadavg()[1]}
                    row["date"] = str(datetime.date.today())
                    print(case.family, case.rows, name, json.dumps(row), flush=True)
                    if row.get("ended", LATE) == LATE:
                        results.setdefault(f"{case.family} {case.rows}", {})[name] = row
                        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if asked.write:
        publish("crossed.md", "crossed-peers", lines(results))


if __name__ == "__main__":
    main()
