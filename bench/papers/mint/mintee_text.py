"""The words of the section on MINTEE."""

from __future__ import annotations

BEFORE = """
## MINTEE: fifty components

Sections 5.3 and A.2.2: 100,000 points of x ~ (1/50) Σ N(θ_k, 1) at θ* = (2, 0, …, 0), a flat
prior, fifty modes 2 e_k. Seven chains, the batch growing from 1000 by 1.4 and then at once to all
rows, α = 0.995, c = 10, Langevin steps, from the origin. The paper estimates the energy from a
minibatch, as `energy=carried`: ĥ/T then has a variance of {noise[0]:.0f} at m = 1000 and
{noise[1]:.0f} at m = 5378, and the chain keeps the luckiest estimate that it meets. The other
energies are [explained here](../explanation/tempering.md#mintee-past-states-of-hotter-levels).

None gets from T = 19.41 to T = 1 in one step, which is what the printed ladder asks for: a jump
from ring 1 is taken with probability {overlap[1]:.0e} in closed form. *Continued* lines go on to
all rows by the factor named, with a jump probability of {jump}. Ratio is the mass of the first
coordinate near 0 over that near 2, 49 in the posterior; (h − H₀)/T is that of all rows near T =
19.41.
"""
AFTER = """
What no correct sampler can reproduce, of Table 2: 44 % of the chain at T = 1 above H₂, 204 or more
above the lowest energy, and 9.55 % above H₆, where the posterior has less than exp(−150) and
exp(−2000) of its mass; and 6 % of the chain at T = 103.51 below H₁, where it has 10⁻²⁰ or less.
Energies with a noise of some 20 T look like that. The share of that chain above H₆, 54 %, is the
correct one.

Modes are lost on the way down: of fifty at the hottest levels a handful is left at level 0 of
100,000 points. With a tenth of the points all fifty come down to level 0 in 60,000 iterations of
three chains, and their shares are still far from equal. `--full` makes as many draws as the paper.
"""
