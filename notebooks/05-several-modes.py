# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A posterior with several modes
#
# A mixture of two Gaussians whose components are nearly exchangeable: the posterior has two modes,
# twenty standard deviations apart. A sampler of one mode agrees with itself and is wrong; this
# notebook shows what streammc says then, and how parallel tempering finds both modes with their
# masses.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np

import streammc
from streammc import samplers
from streammc.models import gaussian_mixture
from streammc.priors import normal

# %% [markdown]
# ## The data and the truth
#
# 400 numbers, variance 1 and weights 0.552 and 0.448 known, two unknown means with the prior
# Normal(0, 3). Two parameters allow the truth by summing over a grid.

# %%
rng = np.random.default_rng(1)
x = np.r_[rng.normal(-1.0, 1.0, 216), rng.normal(1.0, 1.0, 184)]
weights = np.array([0.552, 0.448])
store = streammc.from_arrays(x[:, None], feature_names=["x"])
model = gaussian_mixture(weights=weights, prior=normal(3.0))

grid = np.linspace(-2.0, 2.0, 401)
first, second = np.meshgrid(grid, grid, indexing="ij")
log_density = -0.5 * (first**2 + second**2) / 3.0**2
for value in x:
    log_density += np.logaddexp(
        np.log(weights[0]) - 0.5 * (value - first) ** 2,
        np.log(weights[1]) - 0.5 * (value - second) ** 2,
    )
density = np.exp(log_density - log_density.max())
truth = density[first < second].sum() / density.sum()
print(f"mass of the mode where mu[0] < mu[1]: {truth:.3f}")


def share(run):
    """Return the share of the draws of every chain in the mode where mu[0] < mu[1]."""
    mu = run["posterior"]["mu"]
    return (mu.isel(mu_dim=0) < mu.isel(mu_dim=1)).mean("draw").values


def sampled(sampler, **words):
    """Return a run, and what the program said."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run = streammc.sample(store, model, sampler=sampler, seed=1, **words)
    return run, [str(each.message) for each in said]


# %% [markdown]
# ## What a sampler of one mode says
#
# One chain of `hmc` stays where it starts. Its effective size is high, and R-hat of its two halves
# is 1.

# %%
alone, said = sampled(samplers.hmc(), chains=1)
found = streammc.facts(alone)["summary"]["parameters"]["mu[0, x]"]
print(f"R-hat {found['r_hat']:.3f}, effective draws {found['ess_bulk']:.0f}, share {share(alone)}")
assert found["r_hat"] < 1.01
assert share(alone) in (0.0, 1.0)

# %% [markdown]
# streammc warns all the same: the search for the mode starts from several points, and found
# another mode of comparable evidence.

# %%
print("\n".join(said))
assert any("another mode" in line for line in said)
alone.attrs["verdict"]

# %% [markdown]
# Four chains start in different modes, and R-hat shows it. `hmc-ecs` starts every chain at the
# mode of its control variates, so that R-hat is silent; the warning is not.

# %%
four, said_four = sampled(samplers.hmc())
local, said_local = sampled(samplers.hmc_ecs())
for name, run, lines in (("hmc", four, said_four), ("hmc-ecs", local, said_local)):
    r_hat = streammc.facts(run)["summary"]["parameters"]["mu[0, x]"]["r_hat"]
    print(f"{name}: R-hat {r_hat:.3f}, share {share(run)}, {len(lines)} warnings")
    assert (r_hat > 1.01) == (name == "hmc")
    assert any("another mode" in line for line in lines)

# %% [markdown]
# ## Parallel tempering
#
# `pt` runs a ladder of temperature levels from the posterior to the prior, and exchanges states
# between them. The number of levels is found by a pilot run.

# %%
tempered, said = sampled(samplers.pt())
mass = share(tempered).mean()
summary = streammc.facts(tempered)["summary"]
error = np.sqrt(truth * (1.0 - truth) / summary["parameters"]["mu[0, x]"]["ess_bulk"])
tempering = summary["tempering"]
print(f"share {mass:.3f} with standard error {error:.3f}, truth {truth:.3f}")
print(f"{len(tempering['levels']['beta'])} levels, {tempering['restarts']} restarts from the prior")
assert said == []
assert abs(mass - truth) < 4.5 * error < abs(share(alone)[0] - truth)
print(tempered.attrs["verdict"])

# %% [markdown]
# The levels, and how often neighbours exchange their states: the adapted ladder makes all rates
# alike.

# %%
fig, axes = plt.subplots(2, 1, figsize=(6, 5), sharex=True, layout="constrained")
streammc.plots.plot_ladder(tempered, axes=axes)
plt.show()
rates = np.array(tempering["levels"]["swap_rate"])
assert rates.max() - rates.min() < 0.2

# %% [markdown]
# The draws of three samplers over the density of the grid: only `pt` has both modes in every chain.

# %%
fig, axes = plt.subplots(1, 3, figsize=(12, 4), sharex=True, sharey=True, layout="constrained")
for ax, (name, run) in zip(
    axes, (("hmc-ecs", local), ("hmc", four), ("pt", tempered)), strict=True
):
    ax.contour(grid, grid, density.T, levels=[0.05, 0.3, 0.7], colors="0.6", linewidths=0.8)
    for chain in run["posterior"]["chain"].values:
        mu = run["posterior"]["mu"].sel(chain=chain)[::5]
        ax.plot(mu[:, 0], mu[:, 1], ".", markersize=2, label=f"chain {chain}")
    ax.set_title(f"{name}: share {share(run).mean():.2f} (truth {truth:.2f})")
    ax.set_xlabel("mu[0]")
axes[0].set_ylabel("mu[1]")
axes[0].legend(markerscale=5, loc="lower left")
plt.show()

# %% [markdown]
# ## The evidence
#
# A ladder that ends at the prior estimates log p(x) too; the grid has it with the error of its
# spacing.

# %%
step = grid[1] - grid[0]
constant = -len(x) * 0.5 * np.log(2.0 * np.pi) - np.log(2.0 * np.pi * 3.0**2)
evidence = log_density.max() + np.log(density.sum() * step**2) + constant
estimate, uncertain = (
    tempering[name] for name in ("log_normalising_constant", "log_normalising_constant_error")
)
print(f"log p(x): {estimate:.2f} with standard error {uncertain:.2f}, by the grid {evidence:.2f}")
assert abs(estimate - evidence) < 4.5 * uncertain
