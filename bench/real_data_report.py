"""The page of the comparison on real data, from ``bench/results/real_data.json``.

Run as ``python bench/real_data_report.py`` it writes the page again from those results.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "real_data.json"
PAGE = ROOT / "docs" / "measurements" / "real-data.md"
NO_CERTAINTY = "covtype93k, no certainty rows"
MEASURED = (
    *("flights200k", "bike_hour", "htru2", "norauto", "a9a", "covtype93k", NO_CERTAINTY),
    *("flights200k, gaussian", "flights200k, student-t, 4 df", "flights200k, student-t"),
    *("diamonds", "fretpl_claimnumber", "bike_hour, negative binomial"),
    *("mnist_1v7", "covtype93k, standardised"),
)
"""In order of cost and of the page."""

TEXT = """# Agreement with full-data HMC on real data

`python bench/real_data.py WORK` wrote this page; `bench/results/real_data.json` has more.
{machine}, shared with other work, {date}.

`hmc-ecs` at automatic settings, four chains, order 2, normal priors of sd 10, against `hmc` on all
rows. The number of draws grows until the Monte Carlo error of the comparison meets its bound. For
every coefficient, in posterior sd:

- means differ by at most max(0.1, 4.5 MCSE of the difference), and that MCSE is at most 0.025
  (covtype93k: 0.06);
- sds differ by at most 10 % plus 4 / sqrt(2 ESS), with the smaller ESS of the two runs;
- R-hat of both runs is below 1.01 (covtype93k: 1.05);
- the audit corrects no mean by 0.1 or more.

Columns are standardised; those of a9a and of covtype93k are 0/1 or scaled to [0, 1]. Diamonds (log
price; three factors and two splines) and fretpl_claimnumber (a spline of age) are formulas. `hmc`
samples a Gaussian regression from its sufficient statistics: no row.
"""


def markdown(results: list[dict[str, Any]]) -> str:
    """Return the page for the results measured so far."""
    compared = [result for result in results if "comparison" in result]
    others = {result["name"]: result for result in results if "comparison" not in result}
    machines = "; ".join(dict.fromkeys(result["machine"] for result in results))
    parts = [TEXT.format(machine=machines, date=max(result["date"] for result in results))]
    if compared:
        parts += ["## Measured against the bounds", agreement_table(compared)]
        parts += ["## Cost", cost_table(compared), COST_NOTE]
    if "covtype93k, no certainty rows" in others:
        parts += [
            "## Without certainty rows",
            no_certainty(others["covtype93k, no certainty rows"]),
        ]
    if "mnist_1v7" in others:
        parts += ["## Too many columns to subsample", pixels(others["mnist_1v7"])]
    known = {result["name"] for result in results}
    if missing := [name for name in MEASURED if name not in known]:
        parts.append(f"## Not measured yet\n\n{'; '.join(missing)}.")
    return "\n".join(part.strip() + "\n" for part in parts)


def _verdict(value: str, holds: bool) -> str:
    return value if holds else f"**{value} FAILS**"


def agreement_table(results: list[dict[str, Any]]) -> str:
    """Return one line a data set: maxima over coefficients, failures in bold."""
    lines = [
        "| data | rows | d | mean, sd | its z | MCSE, sd | sd ratio - 1 | of its bound | R-hat "
        "| audit, sd | Pareto k | verdict |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        c = result["comparison"]
        holds = c["holds"]
        tail = "-" if c["pareto_k"] is None else f"{c['pareto_k']:.2f}"
        cells = [
            result["name"],
            f"{result['rows']:,}",
            str(result["coefficients"]),
            _verdict(f"{c['mean']:.3f}", holds["mean"]),
            f"{c['mean_z']:.1f}",
            _verdict(f"{c['mcse']:.4f}", holds["mcse"]),
            f"{c['sd']:.3f}",
            _verdict(f"{c['sd_of_bound']:.2f}", holds["sd"]),
            _verdict(f"{c['r_hat']:.4f}", holds["r_hat"]),
            _verdict(f"{c['correction']:.3f}", holds["correction"]),
            tail,
            "pass" if c["passed"] else "**FAIL**",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


COST_NOTE = """
Certainty rows |C|, subsample size m; the variance is the mean of `log_lik_variance` over the draws.
Rows per iteration are those evaluated, at every leapfrog step. Seconds: full passes + warm-up +
draws, wall-clock.
"""


def cost_table(results: list[dict[str, Any]]) -> str:
    """Return one line a data set: what the settings became and what they cost."""
    lines = [
        "| data | \\|C\\| | m | variance | rows per iteration | ESS | seconds "
        "| hmc: ESS | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        a, b = result["hmc-ecs"], result["hmc"]
        cells = [
            result["name"],
            f"{a['certainty_rows']:,}",
            f"{a['subsample_size']:,}",
            f"{a['log_lik_variance_mean']:.4f}",
            f"{a['rows_per_iteration']:,.0f}",
            f"{a['ess_bulk']:,.0f}",
            _seconds(a),
            f"{b['ess_bulk']:,.0f}",
            _seconds(b),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _seconds(cost: dict[str, Any]) -> str:
    return f"{cost['pass_seconds']:.1f} + {cost['warmup_seconds']:.1f} + {cost['seconds']:.1f}"


def no_certainty(result: dict[str, Any]) -> str:
    """Say what happened on covtype93k without certainty rows."""
    forced = result["forced"]
    message = result["refused"]
    said = f"refused:\n\n> {message}\n\n" if message else "NOT refused.\n\n"
    failed = ", ".join(name for name, holds in forced["holds"].items() if not holds)
    return (
        f"`hmc-ecs` with `certainty=False` on covtype93k is {said}Forced with "
        f"`allow_high_variance` at m = 4000: a mean is {forced['mean']:.2f} sd off, an sd by "
        f"{forced['sd']:.0%}, R-hat {forced['r_hat']:.2f}, mean `log_lik_variance` "
        f"{result['forced_variance']:.3g}, subsamples accepted "
        f"{result['forced_subsample_acceptance']:.2f}, {result['forced_divergences']} divergences; "
        f"criteria not met: {failed or 'none'}."
    )


def pixels(result: dict[str, Any]) -> str:
    """Say what happened on the images."""
    cost = result["hmc"]
    said = f"refused:\n\n> {result['refused']}\n\n" if result["refused"] else "NOT refused.\n\n"
    return (
        f"`hmc-ecs` on mnist_1v7 (784 pixels, {result['rows']:,} images) is {said}"
        f"`auto` chooses `{result['chosen']}`, which drew {cost['chains']} x {cost['draws']} in "
        f"{_seconds(cost)} s, mean acceptance {cost['acceptance_rate']:.2f}, "
        f"{cost['divergences']} divergences, "
        f"largest R-hat {result['r_hat']:.2f} after so few draws."
    )


if __name__ == "__main__":
    PAGE.write_text(markdown([json.loads(line) for line in RESULTS.read_text().splitlines()]))
