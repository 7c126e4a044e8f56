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
# # Mixed models: two classic tables, and one of a million rows
#
# `(1 + x | g)` in a formula: an intercept and a slope for each group. Their effects are integrated
# out, so that the posterior has the coefficients, the standard deviations and the correlation
# alone. The effects come back afterwards, by label.

# %%
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import streammc
from streammc.models import gaussian, logistic
from streammc.priors import half_normal, lkj, normal

DATA = os.environ.get("STREAMMC_TEST_DATA")
"""Folder with grouped/sleepstudy.csv.gz and grouped/Contraception.csv.gz of Rdatasets."""
work = Path(tempfile.mkdtemp())

# %% [markdown]
# ## Reaction times and days without sleep
#
# The table of Belenky et al. (2003): 18 subjects, 10 days. lme4 and MixedModels.jl publish its fit
# by maximum likelihood. Where the file is not at hand, a table is simulated from that fit.

# %%
published = {
    "beta[Intercept]": 251.405,
    "beta[Days]": 10.467,
    "sigma": 25.592,
    "tau[Subject:Intercept]": 23.781,
    "tau[Subject:Days]": 5.717,
    "rho[Subject]": 0.081,
}


def simulated_study():
    """Return a table like the published one, drawn from its fit."""
    rng = np.random.default_rng(3)
    subject, days = np.repeat(np.arange(18), 10), np.tile(np.arange(10.0), 18)
    one, other, rho = (published[f"{name}"] for name in list(published)[3:])
    cov = [[one**2, rho * one * other], [rho * one * other, other**2]]
    u = rng.multivariate_normal([251.405, 10.467], cov, 18)[subject]
    reaction = u[:, 0] + u[:, 1] * days + rng.normal(0.0, 25.592, 180)
    return pd.DataFrame({"Reaction": reaction, "Days": days, "Subject": subject + 301})


study = pd.read_csv(f"{DATA}/grouped/sleepstudy.csv.gz") if DATA else simulated_study()
formula = "Reaction ~ Days + (1 + Days | Subject)"
store = streammc.from_table(study[["Reaction", "Days", "Subject"]], formula=formula, seed=1)
store

# %% [markdown]
# Priors that say little beside 180 rows, so that the posterior lies around the published fit. The
# default of `rho`, LKJ(2), says more: it pulls the correlation of 18 subjects towards 0. The store
# holds standardised columns; `parameters_original` are those of the table. Standard deviations of
# 18 subjects have a skewed posterior, with a mean above the mode.

# %%
prior = {
    "beta[*]": normal(scale=300.0),
    "sigma": half_normal(100.0),
    "tau[*]": half_normal(100.0),
    "rho[*]": lkj(1.0),
}
run = streammc.sample(store, gaussian(prior=prior), path=work / "study", draws=4000, seed=1)
found = streammc.facts(run)["summary"]["parameters_original"]
far = {
    name: abs(found[name]["mean"] - value) / found[name]["sd"] for name, value in published.items()
}
print(f"largest distance from the published fit: {max(far.values()):.1f} sd")
assert max(far.values()) < 3.0, far
pd.DataFrame(
    {
        "published": published,
        "mean": {name: each["mean"] for name, each in found.items()},
        "sd": {name: each["sd"] for name, each in found.items()},
        "r_hat": {name: each["r_hat"] for name, each in found.items()},
    }
).round(3)

# %% [markdown]
# The subjects' effects: deviations from the line that all share, with 90 % intervals.

# %%
effects = streammc.effects(run, store)
ordered = effects.isel(group=np.argsort(effects["mean"].sel(effect="Days").values))
fig, axes = plt.subplots(1, 2, figsize=(9, 4.5), sharey=True, layout="constrained")
for axis, effect in zip(axes, ("Intercept", "Days"), strict=True):
    shown = ordered.sel(effect=effect)
    place = np.arange(shown.sizes["group"])
    axis.hlines(place, shown["q5"], shown["q95"], linewidth=2)
    axis.plot(shown["mean"], place, "o", markersize=4)
    axis.axvline(0.0, color="k", linewidth=0.5)
    axis.set_xlabel({"Intercept": "ms, at day 0", "Days": "ms a day"}[effect])
axes[0].set_yticks(place, [str(label) for label in shown["group"].values])
axes[0].set_ylabel("subject")
plt.show()

# %% [markdown]
# ## Contraception in Bangladesh
#
# 1,934 women of 60 districts (Huq and Cleland 1990), a logistic regression with a random intercept
# for the district; again with the published fit (Laplace approximation of the likelihood).

# %%
published_use = {
    "beta[Intercept]": -1.035,
    "beta[age]": 0.0035,
    "beta[I(age ** 2)]": -0.00456,
    "beta[C(urban)[T.Y]]": 0.697,
    "beta[C(livch)[T.1]]": 0.815,
    "beta[C(livch)[T.2]]": 0.916,
    "beta[C(livch)[T.3+]]": 0.915,
    "tau[district]": 0.475,
}


def simulated_use():
    """Return a table like the published one, drawn from its fit."""
    rng = np.random.default_rng(2)
    n = 1934
    table = pd.DataFrame(
        {
            "age": rng.uniform(-13.5, 19.5, n),
            "urban": rng.choice(["N", "Y"], n, p=[0.71, 0.29]),
            "livch": rng.choice(["0", "1", "2", "3+"], n, p=[0.27, 0.18, 0.16, 0.39]),
            "district": rng.choice(np.arange(1, 61), n, p=rng.dirichlet(np.full(60, 3.0))),
        }
    )
    eta = -1.035 + 0.0035 * table["age"] - 0.00456 * table["age"] ** 2
    eta += 0.697 * (table["urban"] == "Y")
    eta += table["livch"].map({"0": 0.0, "1": 0.815, "2": 0.916, "3+": 0.915})
    eta += rng.normal(0.0, 0.475, 61)[table["district"]]
    table["use"] = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-eta)), "Y", "N")
    return table


women = pd.read_csv(f"{DATA}/grouped/Contraception.csv.gz") if DATA else simulated_use()
women["used"] = (women["use"] == "Y").astype(int)
use = streammc.from_table(
    women,
    formula="used ~ age + I(age ** 2) + C(urban) + C(livch) + (1 | district)",
    seed=1,
)
prior = {"beta[*]": normal(scale=5.0), "tau[*]": half_normal(1.0)}
use_run = streammc.sample(use, logistic(prior=prior), path=work / "use", draws=2000, seed=1)
found = streammc.facts(use_run)["summary"]["parameters_original"]
far = {
    name: abs(found[name]["mean"] - value) / found[name]["sd"]
    for name, value in published_use.items()
}
print(f"largest distance from the published fit: {max(far.values()):.1f} sd")
assert max(far.values()) < 3.0, far
pd.DataFrame(
    {
        "published": published_use,
        "mean": {name: each["mean"] for name, each in found.items()},
        "sd": {name: each["sd"] for name, each in found.items()},
    }
).round(4)

# %% [markdown]
# The share of the variance of the latent response that is between districts, draw by draw:

# %%
use_run["posterior_derived"]["icc"].quantile([0.05, 0.5, 0.95], dim=("chain", "draw")).values

# %% [markdown]
# ## A million rows of 10,000 users
#
# Nothing above changes with the size of the table but the sampler: `auto` now draws a few dozen
# groups an iteration.

# %%
rng = np.random.default_rng(4)
users, rows = 10_000, 1_000_000
user = rng.integers(0, users, rows)
clicks = pd.DataFrame({"x": rng.normal(size=rows), "user": user})
truth = 0.7 * rng.normal(size=users)
eta = -1.0 + 0.5 * clicks["x"] + truth[user]
clicks["clicked"] = (rng.random(rows) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
large = streammc.from_table(clicks, formula="clicked ~ x + (1 | user)", seed=1)
large_run = streammc.sample(large, logistic(), path=work / "clicks", seed=1)
summary = streammc.facts(large_run)["summary"]
print(summary["sampling"]["sampler"], "groups an iteration:", summary["sampling"]["subsample_size"])
pd.DataFrame(summary["parameters"]).T[["mean", "sd", "ess_bulk", "r_hat"]]

# %%
effects = streammc.effects(large_run, large).sel(effect="Intercept")
inside = (effects["q5"].values < truth[effects["group"].values]) & (
    truth[effects["group"].values] < effects["q95"].values
)
print(f"{inside.mean():.1%} of the 90 % intervals hold the true effect")
assert abs(inside.mean() - 0.9) < 0.02
effects.isel(group=slice(0, 3))
