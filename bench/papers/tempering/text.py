"""The words of the page of van de Meent et al. 2014; numbers come from the results."""

from __future__ import annotations

from typing import Any

HEAD = """
# Tempering by subsampling: the paper's tables and figures

van de Meent, Paige and Wood 2014, *Tempering by Subsampling*. **The paper claims** that levels
with fewer rows cost less and make tempered transitions (`stt`) better than HMC or MH alone, and
that parallel tempering comes last. **Found here**: the run times; that `tt` and `stt` gain where
steps are short against the posterior; that `pt` and `spt` are not last; and that with tuned steps,
where nothing has several modes, tempering hardly pays.

`python -m bench.papers.tempering WORK --write` wrote this page, its pictures and
`bench/results/papers-tempering-by-subsampling.json`, which has more. {machine}; processor seconds,
compiling left out, on a machine shared with other work: {seconds}. Ratios compare, seconds do not.

- The paper does not print Σ and σ_0 of the Gaussian model, which decide what its fixed steps are
  worth. Two are taken, chosen with a look at these tables: Σ = 3² I and Σ = 30² I; σ_0 = 10. The
  Gaussian process has N = {n} observations, published 512{most}.
- Three chains start at θ_*, θ_*/2 and 2 θ_*; the first half is discarded; R-hat and ESS are eqs.
  (4) to (8). Eq. (8) has a relative standard error of about 1.44 / √d: 64 % at |θ| = 5.
"""

TIME = """Relative to HMC with the same steps, the median of seven rounds. *Transitions here*: of
the algorithms that run, one transition at level 0 before each tempered one; the paper's sums (11),
(12), (14), (16), (17) and (18) leave out a level or count one too few."""

RATES = """In brackets: relative to the inner sampler of the same line. Bold: the largest of those
that converged; a star: median R-hat of 1.1 or more, or fewer than 20 draws after the first
half."""

FIGURES = (
    (
        "time",
        """
![Seconds of a draw against N](tempering-by-subsampling/run-time.png)
""",
    ),
    (
        "gp",
        """
![Median R-hat against draws and seconds](tempering-by-subsampling/convergence.png)

Figures 1 and 2; the second half of what is drawn so far.
""",
    ),
    (
        "gaussian",
        """
![Effective draws a second](tempering-by-subsampling/against-rows.png)

Figure 3, eq. (8); hollow where the median R-hat is 1.1 or more.
""",
    ),
)

RECIPE = """ M = 6: seven levels, β_m = 2^(-m/2), β_* = 1/8; nested subsets, drawn without
replacement. MH: Gaussian steps of 0.1 β_m^(-1/2). HMC: ε = 0.01 at every level, L = 10 (Gaussian
mean) or 5 (Gaussian process, in log θ), no jitter, no warm-up. Gaussian process: ARD kernel,
lengths log-normal (0.5, 1), σ_f Gamma(4, 1), σ_n Gamma(2, 2). At most 40,000 draws a chain.
"""

TIMED = (
    "Run time: a draw of the Gaussian process is not yet cubic at these N, so that subsets save "
    "less "
    "than α = 3 says; swaps of spt and increments of stt evaluate subsets once more."
)
GAUSSIAN_ORDER = (
    "Table 2: with Σ = 3² I and HMC a draw of the inner sampler is nearly independent; a "
    "tempered draw "
    "is no better and costs its levels. With Σ = 30² I and MH steps are short, and tt and stt "
    "gain what "
    "spt and pt do not, as published."
)
PROCESS_ORDER = (
    "Table 1: the paper's pt and spt come last; here they are not, and with MH they lead beyond "
    "|θ| = 5. "
    "Whether N = 512 changes this was not looked at."
)
FIXED = (
    "Table 1, HMC: trajectories of 0.05 where standard deviations are near 1 in log θ: most "
    "cells beyond "
    "|θ| = 5 do not converge in their seconds."
)
DEFAULTS = (
    "With a step tuned for every level, and levels spaced in warm-up, HMC alone does mostly as "
    "well as "
    "the best tempered sampler or better, but for MH on the Gaussian process."
)


def head(results: dict[str, Any], machine: str) -> str:
    """Return what stands above the tables."""
    process = results.get("gp", {})
    full = bool(process.get("full"))
    names = {"gaussian": "Gaussian mean", "gp": "Gaussian process"}
    spent = []
    for part in ("gaussian", "gp", "tuned"):
        for model, name in names.items():
            limits = {
                line["limit"]
                for cell, line in results.get(part, {}).get("cells", {}).items()
                if cell.startswith(model) and "curve" not in line
            }
            tuned = " with our defaults" * (part == "tuned")
            spent += [f"{name}{tuned} {limit:.2g} a chain" for limit in sorted(limits)]
    return HEAD.format(
        machine=machine,
        seconds=", ".join(spent) or "none",
        n=512 if full else 128,
        most="" if full else ", in figure 3 at most 256, published 1024; `--full` has these",
    )
