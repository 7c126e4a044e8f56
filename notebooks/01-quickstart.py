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
# # From a table to a posterior
#
# A pandas table becomes a store on disk, one full pass gives control variates, `hmc-ecs` samples on
# a small subsample of the rows, and the posterior is read by name with xarray and ArviZ.

# %%
import tempfile
from pathlib import Path

import arviz_stats
import matplotlib.pyplot as plt
import pandas as pd

import streammc
from streammc import demo_data

folder = Path(tempfile.mkdtemp(prefix="quickstart-"))

# %% [markdown]
# ## The table
#
# Simulated collisions from the HIGGS data set (Baldi, Sadowski and Whiteson 2014, CC BY 4.0).

# %%
features = ["lepton_pT", "missing_energy_magnitude", "m_jj", "m_jlv", "m_bb", "m_wwbb"]
table = pd.read_csv(demo_data.path())[["signal", *features]]
table.describe().T

# %% [markdown]
# ## The store
#
# Rows are shuffled, features standardised, and an intercept is put in front. The store is an
# ordinary zarr group, so xarray opens it.

# %%
store = streammc.from_table(table, response="signal", seed=1, path=folder / "higgs.zarr")
store.n_rows, store.feature_names

# %% [markdown]
# ## The posterior
#
# `hmc-ecs` is chosen automatically where it can be right. Nothing else has to be set.

# %%
model = streammc.models.logistic(prior=streammc.priors.normal(scale=10.0))
run = streammc.sample(store, model, chains=4, seed=1, audit=True)
run

# %% [markdown]
# Whether the draws can be trusted, in one sentence.

# %%
assert run.attrs["verdict"].startswith("These draws can be trusted")
run.attrs["verdict"]

# %%
arviz_stats.summary(run)

# %% [markdown]
# Select a coefficient by the name of its feature.

# %%
beta = run["posterior"]["beta"]
fig, axes = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
beta.sel(feature="m_bb").plot.line(x="draw", ax=axes[0], linewidth=0.5, add_legend=False)
beta.sel(feature=features).stack(sample=("chain", "draw")).transpose().to_pandas().plot.box(
    ax=axes[1], vert=False, showfliers=False
)
axes[0].set_title("four chains of one coefficient")
axes[1].set_title("coefficients of standardised features")
plt.show()

# %% [markdown]
# The audit weighs draws against all rows: what subsampling changed, in posterior standard
# deviations.

# %%
summary = streammc.facts(run)["summary"]
assert summary["audit"]["largest_correction"] < 0.1
pd.DataFrame(summary["audit"]["parameters"]).T

# %% [markdown]
# Predictions of every row, with a band; the ROC curve has one too.

# %%
predictions = streammc.predict(run, store)
streammc.plots.plot_roc(predictions)
plt.show()
auc = streammc.facts(predictions)["auc"]["mean"]
print(f"area under the curve {auc:.3f}")
assert auc > 0.6

# %%
{name: summary["sampling"][name] for name in ("certainty_rows", "subsample_size", "rows_read")}
