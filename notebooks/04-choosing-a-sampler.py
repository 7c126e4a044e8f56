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
# # Choosing and checking a sampler
#
# `hmc-ecs` evaluates a few rows in place of all. This notebook shows what it predicts before the
# first draw, what it measures afterwards, and what it says where its centre or its subsample is
# wrong.

# %%
import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import streammc
from streammc import samplers
from streammc.errors import RefusedError

folder = Path(tempfile.mkdtemp(prefix="choosing-"))

# %% [markdown]
# ## A table with a known truth
#
# The simulation `logistic`, as `streammc simulate logistic` writes it: 100,000 rows, 8 columns.

# %%
streammc.simulate("logistic", folder / "rows.zarr", 100_000, 8, 1)
store = streammc.open_store(folder / "rows.zarr")
model = streammc.models.logistic(prior=streammc.priors.normal(scale=10.0))
cv = streammc.control_variates(store, model)
cv

# %% [markdown]
# ## What `auto` chooses, and why
#
# The plan follows from the full pass: the variance of the log-likelihood estimate, the rows of a
# subsample that keep it small, and the processor time of `hmc` and of `hmc-ecs`.

# %%
run = streammc.sample(store, model, control_variates=cv, seed=1, audit=True)
sampling = streammc.facts(run)["summary"]["sampling"]
print(sampling["reason"])
assert sampling["sampler"] == "hmc-ecs"

# %% [markdown]
# ## The variance of the estimate
#
# Predicted at draws of the Laplace approximation, and measured at every draw of the chains. Above
# 1 the sampled density is no longer close to the posterior; the plan aims at 0.1 or less.

# %%
measured, predicted = sampling["log_lik_variance_mean"], sampling["predicted_variance"]
print(f"predicted {predicted:.2g}, measured {measured:.2g}, from {sampling['subsample_size']} rows")
assert predicted / 10 < measured < 10 * predicted
fig, axes = plt.subplots(1, 2, figsize=(11, 3.5), layout="constrained")
streammc.plots.plot_statistic(run, limit=1.0, ax=axes[0])
streammc.plots.plot_audit_weights(run, ax=axes[1])
plt.show()

# %% [markdown]
# ## The audit
#
# One more pass over all rows weighs the draws. The weights on the right are close to 1: no mean
# moves by a hundredth of its standard deviation. `hmc` on all rows says the same.

# %%
audit = streammc.facts(run)["summary"]["audit"]
print({name: audit[name] for name in ("largest_correction", "ess", "pareto_k", "largest_weight")})
assert audit["largest_correction"] < 0.01

# %%
reference, evaluated = {}, {}
for sampler in (samplers.hmc_ecs(), samplers.hmc()):
    each = streammc.sample(
        store, model, sampler=sampler, control_variates=cv, draws=500, warmup=500, seed=2
    )
    facts = streammc.facts(each)["summary"]
    reference[sampler.name] = facts["parameters"]
    evaluated[sampler.name] = facts["sampling"]["evaluations"]["draws"]
both = pd.DataFrame(
    {
        (name, column): {label: value[column] for label, value in found.items()}
        for name, found in reference.items()
        for column in ("mean", "sd", "mcse_mean")
    }
)
error = np.hypot(both["hmc-ecs", "mcse_mean"], both["hmc", "mcse_mean"])
z = (both["hmc-ecs", "mean"] - both["hmc", "mean"]) / error
print(f"largest difference {abs(z).max():.1f} Monte Carlo standard errors")
print({name: f"{count:,} rows evaluated for the draws" for name, count in evaluated.items()})
assert abs(z).max() < 4.5
assert evaluated["hmc-ecs"] < evaluated["hmc"] / 1000
both.round(4)

# %% [markdown]
# ## A control variate of order 1
#
# Without the second derivatives the remainders are larger: the plan asks for more rows, and the
# audit measures a larger correction. Given too few, the run warns.

# %%
first_order = streammc.control_variates(store, model, order=1)


def sampled(name, **words):
    """Return a row of the table below; keep what the program says."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = streammc.sample(store, model, seed=1, audit=True, **words)
        except RefusedError as error:
            return {"run": name, "said": f"refused: {error}"}
    facts = streammc.facts(found)["summary"]
    return {
        "run": name,
        "rows": facts["sampling"]["subsample_size"],
        "certainty rows": facts["sampling"]["certainty_rows"],
        "variance": facts["sampling"]["log_lik_variance_mean"],
        "largest correction": facts["audit"]["largest_correction"],
        "said": "; ".join(str(each.message) for each in said),
    }


pd.set_option("display.max_colwidth", None)
rows = [
    sampled("order 2", control_variates=cv, sampler=samplers.hmc_ecs()),
    sampled("order 1", control_variates=first_order, sampler=samplers.hmc_ecs(order=1)),
    sampled(
        "order 1, 50 rows",
        control_variates=first_order,
        sampler=samplers.hmc_ecs(order=1, subsample_size=50),
    ),
]
orders = pd.DataFrame(rows).set_index("run")
assert orders.loc["order 2", "said"] == orders.loc["order 1", "said"] == ""
assert orders.loc["order 1", "rows"] > 10 * orders.loc["order 2", "rows"]
assert orders.loc["order 1, 50 rows", "said"] != ""
orders

# %% [markdown]
# ## A wrong centre, on purpose
#
# `theta_star` is moved away from the mode, and `passes=1` forbids the program to move it back.
# Nearby, the plan takes more rows, the run warns, and the audit shows that the draws are right all
# the same. Far away no small subsample is right, and the run is refused.

# %%
wrong = {}
for shift in (0.02, 0.3):
    away = streammc.control_variates(store, model, theta_star=cv.theta_star + shift, passes=1)
    assert not away.certificate.converged
    name = f"{away.certificate.decrement:.0f} posterior sd away"
    wrong[shift] = sampled(name, control_variates=away, sampler=samplers.hmc_ecs())
assert "from the mode" in wrong[0.02]["said"]
assert wrong[0.02]["largest correction"] < 0.1
assert wrong[0.3]["said"].startswith("refused")
pd.DataFrame(wrong.values()).set_index("run")

# %% [markdown]
# Without `passes=1` the same start ends at the mode, certified.

# %%
mended = streammc.control_variates(store, model, theta_star=cv.theta_star + 0.3)
print(f"{mended.certificate.passes} passes, decrement {mended.certificate.decrement:.2g}")
assert mended.certificate.converged

# %% [markdown]
# ## Runs of rows
#
# On a disk, neighbours are read faster than single rows. If neighbours are alike, a run of them
# says less than as many single rows: the design effect `deff` is the factor on the variance.
# Stores are shuffled, which keeps it near 1; a store in the order of a column is not.

# %%
rng = np.random.default_rng(3)
x = rng.normal(size=(100_000, 2))
y = (rng.random(len(x)) < 1.0 / (1.0 + np.exp(-1.5 * x[:, 0] + 0.5 * x[:, 1]))).astype(int)
effects = {}
for name, order in (("shuffled", np.arange(len(x))), ("in order", np.argsort(x[:, 0]))):
    table = pd.DataFrame({"y": y[order], "x1": x[order, 0], "x2": x[order, 1]})
    kept = streammc.from_table(table, response="y", shuffle=False)
    runs_of_rows = samplers.hmc_ecs(unit_rows=16)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        each = streammc.sample(kept, model, sampler=runs_of_rows, draws=200, warmup=200, seed=1)
    found = streammc.facts(each)["summary"]["sampling"]
    effects[name] = {key: found[key] for key in ("deff", "unit_rows", "subsample_size")}
    effects[name]["said"] = "; ".join(str(line.message) for line in said)
assert effects["shuffled"]["deff"] < 1.2 < 2.0 < effects["in order"]["deff"]
assert "the rows are ordered" in effects["in order"]["said"]
pd.DataFrame(effects).T
