"""The words of the page; numbers come from the results."""

from __future__ import annotations

from typing import Any

HEAD = """
# HMC-ECS: the paper's tables and figures

Dang, Quiroz, Kohn, Tran and Villani 2019, *Hamiltonian Monte Carlo with Energy Conserving
Subsampling*, JMLR 20(100): sections 6.5 to 6.8 with the settings of the paper.
All of them stand on this one page, which is long so that a search finds any table.

`python -m bench.papers.hmc_ecs WORK --write` wrote this page, its pictures and
`bench/results/papers-hmc-ecs.json`. {machine}, shared with other work; no time is measured here,
only evaluations are counted.

{higgs} Bankruptcy, simulated: 4,748,089 firm-years, about 1 % failures, eight covariates each with
an effect that is not linear, as an intercept and ten B-splines each: d = 81, made by `ingest
--formula`.

**How to read the costs.** CT is IF times the rows at which likelihood or gradient were evaluated,
per kept draw, and RCT is that of a method over that of perturbed HMC-ECS: above 1, HMC-ECS is
cheaper. IF is that of CODA: the spectrum at zero of an autoregression. *Measured* is what
streammc evaluated: whole runs of HMC-ECS and HMC, with their passes; for stochastic gradients
what came after burn-in, against what came after burn-in of HMC-ECS. *Counted as the paper* takes
the IF measured here with the paper's evaluations: L + 1 an iteration, and 30 passes over the
data. It does not say how many it made, but each of its four ratios to full-data HMC implies 29 to
31 by its own IF: with 30 those ratios agree where the IF do, and that is all that they then test.
The captions of tables 1 and 3 compare whole runs of HMC-ECS with stochastic gradients after
burn-in; with the published cost of a whole run the median of SG-HMC would be below 1, so that its
figures are after burn-in on both sides, as ours.
"""

SIMULATED = """HIGGS, simulated: 10.5 million rows and 500,000 for testing, 28 covariates with the
marginals and rank correlations of 10,984 rows of HIGGS (a Gaussian copula; `--higgs PATH` takes
the real file)."""
REAL = "HIGGS: the rows of {file}, the last 500,000 for testing, standardised."

FIGURES = (
    (
        "higgs",
        """
### Figures 1 to 3: HIGGS

![Marginal densities of four coefficients by method](hmc-ecs/higgs-densities.png)

Figure 1: four coefficients drawn at random; red full-data HMC, green the method.

![Means and variances against full-data HMC](hmc-ecs/higgs-moments.png)

Figure 2: every coefficient, relative to full-data HMC, so that differences can be seen at all;
triangles lie outside of the panel.

![ROC curves](hmc-ecs/higgs-roc.png)

Figure 3: ROC of the test rows, mean and 90 % band of 100 draws.
""",
    ),
    (
        "bankruptcy",
        """
### Figures 4 to 6: bankruptcy

![Marginal densities of four coefficients by method](hmc-ecs/bankruptcy-densities.png)

Figure 4, as figure 1.

![Means and variances against full-data HMC](hmc-ecs/bankruptcy-moments.png)

Figure 5, as figure 2.

![Realised and predicted failures](hmc-ecs/bankruptcy-predicted.png)

Figure 6: failures in 100 equal groups by earnings ratio, and the predicted share with the 90 %
band of its posterior.
""",
    ),
    (
        "scaling",
        """
### Figure 7: scaling

![Step size and acceptance against dimension](hmc-ecs/scaling.png)
""",
    ),
    (
        "orders",
        """
### Figures 8 and 9: control variates of order 0, 1 and 2

![Variance of the estimate along the iterations](hmc-ecs/orders-variance.png)

Figure 8: dashed, the end of the first stage, where θ* moves; solid, the end of burn-in.

![Means and variances by order](hmc-ecs/orders-moments.png)

Figure 9, relative to full-data HMC.
""",
    ),
)

RECIPE = """
- HMC-ECS: leapfrog, ε = 0.2, trajectories of 1.2, G = 100 blocks, no certainty rows, units of one
  row; m = 1300 (HIGGS) and 1000 (bankruptcy); 1000 iterations of burn-in and R = 2026 draws, with
  which IF 2.185 is the published ESS of 927; four chains, costs are those of one.
- θ* in two stages: the mode of 1 % of the rows; a pass; 200 iterations (bankruptcy: 100 with m =
  62,000) under dual averaging; a pass at the mean of their second half, and one at the maximum of
  that expansion. All of it counts.
- Signed: mini-batches of 30, λ = 100 and 200.
- SG-HMC: C = I beside a mass matrix of 10⁵ and more is no friction, so friction 0, and a fresh
  momentum every iteration; ε = 0.06 and L = 20; ε = 0.02 and L = 60 or 7, two chains. Mass matrix
  as HMC-ECS.
- SGLD: the identity as preconditioner, 6 R iterations.
- `automatic` is `hmc-ecs` as it comes: the split integrator, certainty rows, m chosen, passes
  until θ* is certified. `recalibrated` is the same with `recalibrate=200` (bankruptcy: 100)
  instead: the paper's two stages as streammc makes them. Their chains share a stage, and a
  quarter of it counts.
- Full-data HMC: leapfrog, ε = 0.2, L = 6, two chains of 250 draws from the Laplace approximation
  at the certified mode; its cost is scaled to the paper's 1000 of 3026 iterations of burn-in.
  `--full` runs all.
- Priors: N(0, 10²) for HIGGS, N(0, 1) for bankruptcy, on standardised columns; the paper does not
  print its λ_θ.
"""


AGREEMENT = (
    """Where all methods are equally far from HMC, the error is that of its own 500 draws."""
)

LANGEVIN = """Along eigendirections of the precision, variances relative to the posterior's: what
a chain of any length keeps (bias, from the steps and from the subsample, in closed form), and what
a chain of R draws has not yet seen (slow mixing: IF = 4 / (ε λ) - 1). In the tightest direction the
difference from HMC is bias; in the loosest, with control variates, it is slow mixing alone: a run
that is shorter than a few IF shows too small a variance, and each chain a mean of its own."""


def differences(results: dict[str, Any]) -> str:
    """Return a line for each difference from the paper."""
    lines = []
    if "higgs" in results:
        lines += _higgs(results["higgs"])
    if "bankruptcy" in results:
        lines += _bankruptcy(results["bankruptcy"])
    if "scaling" in results:
        lines += [
            "Figure 7: the mass matrix is the curvature of all rows, the paper's that of the "
            "subsample, which changes with it; hence m = 16 d where d²/2 is less.",
            "Figure 7: trajectories of 3π/2 instead of 1.2, so that their whole number of steps "
            "hardly rounds the step size; at d = 256 all m = n rows leave order 1 a variance of 3.",
            "Figure 7: IF of 1.4 to 3.5 instead of close to 1, since a proposal in five is "
            "rejected, and at order 1 a subsample is felt until it is replaced.",
        ]
    if "orders" in results:
        zero = results["orders"]["orders"]["0"]
        lines += [
            "Figure 8: the paper moves θ* every 200 iterations of burn-in, here it moves once; at "
            "order 0 the first stage has a small variance only because dual averaging has made "
            "its steps minute; then subsamples are accepted at a rate of "
            f"{zero['alpha_u']:.2f} and positions never.",
        ]
    return "\n".join(f"- {line}" for line in lines)


def _median(result: dict[str, Any], name: str, way: str) -> str:
    return f"{result['costs'][name][way][1]:.3g}"


def _over(result: dict[str, Any], name: str, way: str) -> str:
    return f"{result['costs']['HMC over'][name][way]:,.0f}"


def _langevin_words(figures: str, result: dict[str, Any]) -> str:
    found = {r["direction"]: r for r in result["langevin"] if r["method"] == "SGLD"}
    tight, loose = found["tightest"], found["loosest"]
    return (
        f"{figures}, SGLD with control variates: in the tightest direction bias, a variance "
        f"{tight['discretisation']:.2f} times the posterior's ({tight['variance']:.2f} measured) "
        f"and IF {tight['if_predicted']:.0f}; in the loosest none "
        f"({loose['discretisation'] * loose['subsampling']:.2f}), but IF "
        f"{loose['if_predicted']:,.0f} for chains of 12,156 draws, which show "
        f"{loose['variance']:.2f} of the variance."
    )


def _higgs(result: dict[str, Any]) -> list[str]:
    step = result["sgld_step"]
    bare = result["agreement"]["SG-HMC, no control variates"]["median"]
    perturbed, signed = "HMC-ECS, perturbed", "HMC-ECS, signed"
    return [
        f"Table 1, signed: {_median(result, signed, 'measured')} measured against 1.15, since the "
        "paper's cost is mostly its 30 passes, which both methods share; ours are three. Counted "
        f"with 30, {_median(result, signed, 'counted')}.",
        f"Full-data HMC: {_over(result, perturbed, 'measured')} and "
        f"{_over(result, signed, 'measured')} times as expensive instead of 642.8 and 554.1, for "
        f"the same reason; counted with 30 passes {_over(result, perturbed, 'counted')} and "
        f"{_over(result, signed, 'counted')}.",
        f"Table 1, SG-HMC: {_median(result, 'SG-HMC', 'measured')} measured against 2.97, since "
        "every step draws rows anew and evaluates them at θ* too: two evaluations a row, where "
        f"the paper counts one ({_median(result, 'SG-HMC', 'counted')} so).",
        f"Table 1, SGLD: its ε of {step['published']:g} is beyond what is stable on standardised "
        f"columns, 4 / max λ = {step['largest']:.2g}; half of that is used, {step['used']:.2g}. "
        "The paper does not say how its covariates are scaled, on which the identity depends: "
        "ours mix faster. Taken as printed, with the total of its 6 R iterations, eq. (2) would "
        "be 6 times as much.",
        _langevin_words("Figures 1 and 2", result),
        "Table 1, spread: the paper's IF are of one chain of about 2000 draws, ours of four.",
        f"Figures 1 and 2, SG-HMC without control variates: a variance {bare:.0f} times too large "
        "(median); the paper, which gives no figure, draws less. A step adds noise of ε² n / m = "
        "29 to a momentum of variance 1.",
    ]


def _bankruptcy(result: dict[str, Any]) -> list[str]:
    step = result["sgld_step"]
    perturbed, signed = "HMC-ECS, perturbed", "HMC-ECS, signed"
    return [
        f"Table 3, signed: {_median(result, signed, 'measured')} measured against 1.6; counted "
        f"with 30 passes {_median(result, signed, 'counted')}.",
        f"Full-data HMC: {_over(result, perturbed, 'measured')} and "
        f"{_over(result, signed, 'measured')} times as expensive instead of 478.7 and 311.5; "
        f"counted with 30 passes {_over(result, perturbed, 'counted')} and "
        f"{_over(result, signed, 'counted')}.",
        f"First stage: m = 62,000 at the mode of 1 % of the rows has a variance of "
        f"{result['stage']:.0f}, not about 1: 1 % holds about 470 failures for 81 coefficients. "
        "Its 100 iterations still find the posterior.",
        "Table 4, signed: α_u is higher than 0.964, since θ* is closer to the mode after our two "
        "passes.",
        f"Table 3, SGLD: ε = {step['published']:g} is beyond 4 / max λ = {step['largest']:.2g} of "
        f"standardised columns; {step['used']:.2g} is used. The rest as for HIGGS.",
        _langevin_words("Figures 4 and 5", result),
        "Table 3, SG-HMC with L = 60: the published maximum of 682 beside a median of 9.5 is one "
        "slow coefficient, which these data do not have.",
    ]
