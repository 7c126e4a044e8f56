"""The words and published figures of the section on MINTEE."""

from __future__ import annotations

PUBLISHED = (1.00, 19.41, 27.13, 37.93, 53.02, 74.06, 103.51)
"""Temperatures of table 2."""
TABLE_2 = (
    (51.08, 4.76, 6.45, 8.44, 10.00, 9.73, 9.55),
    (40.15, 5.01, 7.14, 9.63, 12.20, 12.72, 13.16),
    (34.80, 4.91, 7.16, 10.11, 13.09, 14.37, 15.57),
    (29.93, 4.78, 7.05, 10.23, 13.97, 15.82, 18.22),
    (22.20, 4.17, 6.42, 9.93, 14.40, 18.17, 24.71),
    (13.60, 3.16, 5.12, 8.45, 13.69, 20.02, 35.96),
    (6.08, 1.74, 3.07, 5.60, 10.44, 18.71, 54.37),
)
"""Per cent of the samples of a chain in every energy ring."""
BEFORE = """
## MINTEE: fifty components

Sections 5.3 and A.2.2: 100,000 points of x ~ (1/50) Σ N(θ_k, 1) at θ* = (2, 0, …, 0), a flat
prior, fifty modes 2 e_k. Seven chains, the batch growing from 1000 by 1.4 and then at once to all
rows, α = 0.995, c = 10, p_ee = 0.1, Langevin steps adapted to an acceptance of 0.35, from the
origin. The paper's algorithm estimates the energy from a minibatch. Which estimate makes it work:

- *carried, as printed*: rows drawn for every proposal. ĥ/T has a variance of m^(2α − 1) var(l_i),
  here {noise[0]:.0f} at m = 1000 and {noise[1]:.0f} at m = 5378. The chain keeps the luckiest
  estimate that it meets; steps adapted to an acceptance rate go to zero, since it no longer
  depends on them. Rings and jumps are random.
- *carried, control variates*: the terms at a mode, the same function at all fifty, are
  subtracted. About 2 (h − H₀)/T remains, some 25; it cancels the energy from the marginal of the
  chain but for a factor 1 − m^(α − 1), about 0.03.
- *shared*: the same rows at both ends of a step, drawn anew for every step. The noise is that of
  the step alone. Most modes are found, at energies above those of the temperature that is printed.
- *subset*: rows of a level's own, drawn once, nested. No noise, and a jump between levels is
  exact, as both energies can be computed. But a level's posterior is that of its rows, and the
  rows that the level above has not seen put a variance of some 10 into the log ratio of a jump:
  of thousands of past states only a few can be taken. Where the ladder is continued, modes
  come down slowly and unevenly.
- *full*: all rows at every level, the equi-energy sampler of Kou, Zhou and Wong (2006) itself. A
  jump changes the temperature at almost one energy, and no state is luckier than another; factors
  of 2 between levels do for jumps, though modes are lost on the way down (the last table). It is
  the default of `mintee` in more than ten dimensions, and `subset`
  in fewer.

None of them gets from T = 19.41 to T = 1 in one step, which is what the printed ladder asks for.
Energies of a chain at T lie at about 13 T ± 4 T above the lowest, not 25 T as for fifty Gaussian
dimensions: 48 directions are of fourth order. Ring 0, where half of the chain at T = 1 is, has a
share of {overlap[0]:.0e} of the chain at T = 19.41, and a jump from ring 1 is taken with
probability {overlap[1]:.0e} (in closed form; {overlap[2]:.0e} and {overlap[3]:.0e} with fifty
Gaussian dimensions). The lines that are *continued* go on to all rows by the factor named, with a
jump probability of {jump}, since every level has to be come down.

Ratio is the mass of the first coordinate near 0 over that near 2, 49 in the posterior; modes near
T = 19.41 are those in the rings of the level closest to it, and (h − H₀)/T there is the energy of
all rows at these states. Where the table has the chain in one mode, a ratio says nothing.
"""
AFTER = """
What no correct sampler can reproduce, of Table 2: 44 % of the chain at T = 1 above H₂, where it
is 204 or more above the lowest energy, and 9.55 % above H₆, 2125 or more above it; the posterior
has less than exp(−150) and exp(−2000) of its mass there. And 6 % of the chain at T = 103.51 below
H₁, ten above the lowest energy, where it has 10⁻²⁰ or less. That is what energies look like with
a noise of some 20 T, put into rings that are narrower. The share of that chain above H₆, 54 %, is
the correct one: the truncation makes the density grow with the volume up to H₆.

**Modes are lost on the way down.** Every mode has the same mass at every level, but the states
that a level hands down are those of its lowest rings, where it has been few times: its steps
forget a position slowly, and fifty excursions give fewer than fifty modes. Of fifty at the hottest
levels a handful is left at level 0 of 100,000 points. With a tenth of the points (*10,000
points*), where the ladder has four levels and a draw costs a thirteenth, all fifty come down to
level 0 in 60,000 iterations of three chains, and their shares are still far from equal: a
correct sampler, and not yet a converged one. More iterations are what would close it.

The paper has 300,000 draws of the lowest chain. A draw with energies of all rows evaluates
800,000 terms of fifty components; `--full` makes as many as the paper.
"""
