"""The words of the page of van de Meent et al. 2014; numbers come from the results."""

from __future__ import annotations

from typing import Any

HEAD = """
# Tempering by subsampling: the paper's tables and figures

van de Meent, Paige and Wood 2014, *Tempering by Subsampling*: tables 1 and 2, figures 1 to 3 and
the run times of section 4.4, with the settings of the paper, and once more with ours.
All of them stand on this one page, which is long so that a search finds any table.

`python -m bench.papers.tempering WORK --write` wrote this page, its pictures and
`bench/results/papers-tempering-by-subsampling.json`. {machine}; processor seconds,
compiling left out, on a machine shared with other work: {seconds}. The paper does not name its
machine: ratios compare, seconds do not.

**What the paper does not print.** Σ of the Gaussian model and its σ_0. They decide what the fixed
steps are worth: a step of 0.1, a trajectory of ten steps of 0.01. At |θ| = 5 the published rates
with HMC are to each other as the published run times, which is what independent draws give: the
posterior is no wider than a trajectory is long. With MH `tt` and `stt` are published as better than
MH alone, which we find only where steps are short against the posterior. We found no Σ = s² I that
gives both, so there are two here, chosen with a look at these tables: Σ = 3² I, standard deviation
of the posterior 0.19 at N = 256 and 0.09 at N = 1024, and Σ = 30² I, 1.8 and 0.9; σ_0 = 10. Which
method is better, and roughly by how much, compares; nothing else does.

**Smaller here.** The Gaussian process has N = {n} observations, published 512{most}.

**How draws are judged.** Three chains start at the prior mean θ_*, θ_*/2 and 2 θ_*; the first half
is discarded; R-hat and ESS are eqs. (4) to (8), with the square that (6) lacks; medians over the
parameters; a star where the median R-hat is 1.1 or more. Of the Gaussian mean θ_* is 0: the three
chains start at one place, so that R-hat says less there. The time is that of all three chains,
discarded halves included.

**Eq. (8) is noisy.** It rests on the variance of three means. For chains that have converged
3 S Var / B is the effective size over an exponential variable of mean 1: its median over d
independent parameters is 1 / ln 2 = 1.44 times the effective size, with a relative standard error
of about 1.44 / √d: 64 % at |θ| = 5, 32 % at 20, 14 % at 100. *Autocorrelations* is the usual
estimate from within the chains (Vehtari et al. 2021), which is steadier, and too large where
chains have not mixed. An order of methods that only one of the two shows is chance.

**What runs.** `pt` and `spt`: Algorithm 1 with the pair (m - 1, m), a sweep of swaps from the last
level down, subsets drawn once a chain. `tt` and `stt`: Neal's tempered transitions, which Algorithm
2 misprints; the way down is the way up reversed, so level M has two transitions and level 0 none.
One transition at level 0 comes before. A draw of `tt` is then 2 M + 1 = 13 transitions, where the
paper measures 12.94. Baseline: the inner kernel alone.
"""

TIME = """Relative to HMC with the same steps, the median of seven rounds in which the methods take
turns. *As printed*: the paper's closed forms; its sums (11) and (12) leave level 0 out, (14) and
(16) give the last level the cost of the first below 1, and (17), (18) count M levels where there
are M + 1. *Corrected*: the same with these mended. *Transitions here*: of the algorithms that run,
one transition at level 0 before each tempered one. Rows evaluated are counted by the samplers, with
those of swaps and of new subsets, and have α = 1 whatever the model costs."""

RATES = """In brackets: relative to the inner sampler of the same line. Bold: the largest of those
that converged, star: median R-hat of 1.1 or more, or fewer than 20 draws after the first half.
The chains of figure 2, |θ| = 20 with HMC, are three times as long as the others."""

TUNED = """A fixed step of 0.01 or 0.1 is a property of the paper, not of the methods: with it the
hotter levels move in steps that are too short for them. Here warm-up (half the time of a chain)
finds a step for every level and spaces the levels; HMC jitters its steps; steps have the shape of
the Laplace approximation for the Gaussian mean, units of log θ for the Gaussian process; swaps are
even-odd; L = 10. Still 7 levels, down to β_* = 1/8. The warm-up is what is discarded, and its
time counts."""

FIGURES = (
    (
        "time",
        """
### Figure 1: run time

![Seconds of a draw against N](tempering-by-subsampling/run-time.png)
""",
    ),
    (
        "gp",
        """
### Figure 2: convergence

![Median R-hat against draws and seconds](tempering-by-subsampling/convergence.png)

The second half of what is drawn so far; at most 30 seconds a chain.
""",
    ),
    (
        "gaussian",
        """
### Figure 3: effective draws a second against N

![Effective draws a second](tempering-by-subsampling/against-rows.png)

Eq. (8); hollow where the median R-hat is 1.1 or more.
""",
    ),
)

RECIPE = """
- M = 6: seven levels, β_m = 2^(-m/2), β_* = 1/8; subsets nested, drawn without replacement.
- MH: Gaussian steps of 0.1 β_m^(-1/2). HMC: ε = 0.01 at every level, L = 10 (Gaussian mean) or 5
  (Gaussian process, in log θ), no jitter. No warm-up, no tuning, no pass.
- Gaussian process: ARD kernel, lengths log-normal (0.5, 1), σ_f Gamma(4, 1), σ_n Gamma(2, 2);
  hyperparameters drawn from these; coordinates with standard deviation the mean length.
- One data set for every |θ|; fewer rows are the first of more. At most 40,000 draws a chain.
"""

TIMED = (
    "Run time: a draw of the Gaussian process is not yet cubic at these N: kernel entries and "
    "their derivatives take N², so that subsets save less than α = 3 says. Swaps of spt and the "
    "increments of stt evaluate subsets once more, which the closed forms leave out."
)
GAUSSIAN_ORDER = (
    "Table 2: with Σ = 3² I and HMC a draw of the inner sampler is nearly independent, as the "
    "published rates at |θ| = 5 say of theirs; a tempered draw is no better and costs its levels. "
    "With Σ = 30² I and MH steps are short, and longer at the hotter levels: going up and down "
    "covers more than the same transitions at level 0 would, and tt and stt gain what spt and pt "
    "do not, as published."
)
PROCESS_ORDER = (
    "Table 1: the paper's pt and spt come last; here they are not, and with MH they lead beyond "
    "|θ| = 5. At N = 128 most length scales are hardly known, and hot levels travel through the "
    "prior, which may be why; whether N = 512 changes this was not looked at, and why the paper's "
    "pt is slow was not found. Figure 2 agrees that tempered draws converge in fewer draws than "
    "HMC; in seconds spt is first here, stt there."
)
FIXED = (
    "Table 1, HMC: ε = 0.01 and L = 5 are trajectories of 0.05 where the posterior's standard "
    "deviations are near 1 in log θ. Most cells beyond |θ| = 5 do not converge in their seconds: "
    "their figures order nothing."
)
DEFAULTS = (
    "Our defaults: where steps are tuned, nothing here has several modes and HMC alone does "
    "mostly as well as the best tempered sampler or better: tempering does not pay, but for MH "
    "on the Gaussian process."
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
