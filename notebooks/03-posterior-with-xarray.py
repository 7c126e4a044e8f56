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
# # A posterior with xarray and ArviZ
#
# A run is an `xarray.DataTree`: draws have names in place of numbers of columns. This notebook
# selects, groups and contrasts coefficients, turns them into odds ratios, looks at the chains with
# ArviZ, and compares predictions with what was observed.

# %%
import arviz_plots as azp
import arviz_stats as azs
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import streammc
from streammc import demo_data

# %% [markdown]
# ## The run
#
# Simulated collisions of the HIGGS data set (Baldi, Sadowski and Whiteson 2014, CC BY 4.0). The
# detector marks a jet that comes from a bottom quark; the mark of the first jet has three values.
# `loose` is the reference level.

# %%
table = pd.read_csv(demo_data.path())
marks = np.array(["none", "loose", "tight"])
table["mark"] = marks[table["jet_1_btag"].rank(method="dense").astype(int) - 1]
formula = "signal ~ C(mark) + lepton_pT + missing_energy_magnitude + m_jj + m_jlv + m_bb + m_wwbb"
store = streammc.from_table(table, formula=formula, seed=1)
run = streammc.sample(
    store, streammc.models.logistic(), sampler=streammc.samplers.hmc_ecs(), seed=1, audit=True
)
print(run.attrs["verdict"])
assert run.attrs["verdict"].startswith("These draws can be trusted")

# %% [markdown]
# ## Selection
#
# The group `posterior` is on the scale of the table, `sampled_posterior` on the scale of the
# standardised columns. Both have the dimensions `chain`, `draw` and `feature`.

# %%
scaled = run["sampled_posterior"]["beta"]
beta = run["posterior"]["beta"]
beta.sel(feature=["m_bb", "m_wwbb"]).quantile([0.05, 0.5, 0.95], dim=("chain", "draw")).to_pandas()

# %% [markdown]
# ## Odds ratios
#
# The exponential of a coefficient is the ratio of the odds at one unit more; of a standardised
# column that is one standard deviation more. Quantiles of a ratio are exponentials of quantiles;
# the mean is not, so that the exponential is taken of every draw.

# %%
ratio = np.exp(scaled.sel(feature=["m_jj", "m_jlv", "m_bb", "m_wwbb"]))
ends = ratio.quantile([0.05, 0.95], dim=("chain", "draw"))
odds = pd.DataFrame(
    {
        "mean": ratio.mean(dim=("chain", "draw")).to_series(),
        "5 %": ends.sel(quantile=0.05).to_series(),
        "95 %": ends.sel(quantile=0.95).to_series(),
        "P(ratio > 1)": (ratio > 1.0).mean(dim=("chain", "draw")).to_series(),
    }
)
assert odds.loc["m_bb", "95 %"] < 1.0 < odds.loc["m_jlv", "5 %"]
odds.round(3)

# %% [markdown]
# ## Contrasts
#
# The formula compares each level with `loose`. The difference of two other levels is a difference
# of draws: their correlation is in it.

# %%
none, tight = beta.sel(feature="C(mark)[T.none]"), beta.sel(feature="C(mark)[T.tight]")
contrast = tight - none
apart = np.sqrt(tight.var() + none.var())
low, high = contrast.quantile([0.05, 0.95], dim=("chain", "draw")).values
print(f"tight against none: odds times {np.exp(low):.2f} to {np.exp(high):.2f} (90 %)")
print(f"sd of the contrast {contrast.std():.3f}; as if independent {apart:.3f}")
assert contrast.std() < 0.9 * apart

# %% [markdown]
# ## Groups of coefficients
#
# A coordinate beside `feature` says what a column is, and `groupby` does the rest: the mean size
# of a standardised coefficient by kind of column.

# %%
kinds = {"m_jj": "mass", "m_jlv": "mass", "m_bb": "mass", "m_wwbb": "mass"}
kinds |= {"lepton_pT": "momentum", "missing_energy_magnitude": "momentum"}
slopes = scaled.sel(feature=list(kinds))
slopes = slopes.assign_coords(kind=("feature", list(kinds.values())))
size = abs(slopes).groupby("kind").mean()
size.quantile([0.05, 0.5, 0.95], dim=("chain", "draw")).to_pandas().round(3)

# %% [markdown]
# ## Chains
#
# ArviZ reads the run as it is.

# %%
summary = azs.summary(run)
assert (azs.summary(run, round_to="none")["r_hat"] < 1.01).all()
summary

# %%
azp.plot_forest(run, combined=True, labels=["feature"], figure_kwargs={"figsize": (8, 4)})
plt.show()

# %%
shown = {"feature": ["C(mark)[T.none]", "m_bb", "m_wwbb"]}
wide = {"figsize": (12, 3.5), "layout": "constrained"}
azp.plot_trace(run, coords=shown, figure_kwargs=wide)
plt.show()

# %% [markdown]
# Ranks of the draws of each chain among all draws: lines inside the band say that chains agree.

# %%
azp.plot_rank(run, coords=shown, figure_kwargs=wide)
plt.show()

# %%
azp.plot_ess(run, coords=shown, figure_kwargs=wide)
plt.show()

# %%
square = {"figsize": (8, 7), "layout": "constrained"}
azp.plot_pair(run, coords={"feature": ["m_jj", "m_bb", "m_wwbb"]}, figure_kwargs=square)
plt.show()
corner = scaled.sel(feature=["m_bb", "m_wwbb"]).stack(sample=("chain", "draw"))
correlation = float(np.corrcoef(corner)[0, 1])
assert correlation < -0.2
print(f"correlation of m_bb and m_wwbb: {correlation:.2f}")

# %% [markdown]
# ## Predictions against observations
#
# Predicted and realised share of signal in twenty groups of `m_bb` and of `m_wwbb`. Signal has a
# peak in both masses, which a linear predictor cannot follow. The coefficients above are sampled
# well; the model is wrong.


# %%
def plot_masses(run, store):
    """Plot predictions by two masses; return the largest gap to what was observed."""
    _, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    gaps = []
    for ax, column in zip(axes, ("m_bb", "m_wwbb"), strict=True):
        predictions = streammc.predict(run, store, by=column, bins=20)
        streammc.plots.plot_by_covariate(predictions, ax=ax)
        gap = predictions["group_realised"] - predictions["group_mean"]
        gaps.append(float(abs(gap).max()))
        ax.set_title(f"largest gap {gaps[-1]:.2f}")
    axes[1].set_ylabel("")
    plt.show()
    return max(gaps)


linear = plot_masses(run, store)

# %% [markdown]
# With a spline of each mass the predictions follow. `hmc` uses all rows; on this design `hmc-ecs`
# warns that the posterior may be wider than the region on which it samples.

# %%
formula = "signal ~ C(mark) + lepton_pT + missing_energy_magnitude + m_jj + m_jlv"
curved_store = streammc.from_table(
    table, formula=formula + " + bs(m_bb, df=8) + bs(m_wwbb, df=8)", seed=1
)
curved = streammc.sample(
    curved_store, streammc.models.logistic(), sampler=streammc.samplers.hmc(), seed=1
)
spline = plot_masses(curved, curved_store)
assert spline < 0.5 * linear

# %% [markdown]
# ## Replicated responses
#
# `posterior_predictive` draws responses of some rows, in the groups that ArviZ expects. A quantity
# of replicated responses, here the share of signal among rows near the peak, is compared with the
# same of the observed ones. Where all replicates are above it, or all below, the model misses it.


# %%
def near_the_peak(run, store):
    """Return the share of signal near the peak: replicated (chain, draw), and observed."""
    check = streammc.posterior_predictive(run, store, rows=4000, draws=400, seed=1)
    row = check["observed_data"]["row"].values
    m_bb = table["m_bb"].to_numpy()[store.row_ids(0, store.n_rows)[row]]
    near = np.flatnonzero((m_bb > 0.75) & (m_bb < 0.95))
    groups = ("posterior_predictive", "observed_data")
    replicated, observed = (check[name]["signal"].isel(row=near).mean("row") for name in groups)
    return check, replicated, float(observed)


fig, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
tail = {}
checks = {}
for name, fitted, rows in (("linear", run, store), ("spline", curved, curved_store)):
    checks[name], replicated, observed = near_the_peak(fitted, rows)
    tail[name] = float((replicated >= observed).mean())
    ax.hist(replicated.values.ravel(), bins=25, alpha=0.6, label=f"replicated, {name}")
ax.axvline(observed, color="k", label="observed")
ax.set_xlabel("share of signal where 0.75 < m_bb < 0.95")
ax.set_ylabel("draws")
ax.legend(loc="upper center")
plt.show()
print(tail)
assert tail["linear"] == 0.0
assert 0.005 < tail["spline"] < 0.995

# %% [markdown]
# The calibration of the spline model by ArviZ: predicted probability against the share of signal
# (CEP, the conditional event probability), with the band that a calibrated model would have.

# %%
azp.plot_ppc_pava(checks["spline"], figure_kwargs={"figsize": (5, 4.5)})
plt.show()
