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
# # A model of your own
#
# The length of a vector of two independent normal numbers of one variance is Weibull with shape 2.
# The missing energy of a collision is such a length, roughly. This notebook states a Weibull
# regression in NumPy, checks its derivatives, shows what a wrong one provokes, compiles it, and
# looks at its predictions.

# %%
import tempfile
import time
import warnings
from pathlib import Path

import arviz_plots as azp
import matplotlib.pyplot as plt
import numba
import numpy as np
import pandas as pd
from scipy.special import gamma as gamma_function

import streammc
from streammc import demo_data, samplers
from streammc.errors import ModelError
from streammc.models import Parameter, check_model, user
from streammc.priors import half_normal

# %% [markdown]
# ## The density
#
# With the linear predictor eta, the logarithm phi of the shape k, and z = k (log y - eta):
#
#     log p(y) = phi + z - log y - exp(z)
#
# The derivatives are those in eta and phi. `Parameter` states what is reported: coefficients that
# are turned back to the scale of the table, their exponentials as ratios, and a positive shape
# with a prior.


# %%
def shape_and_z(eta, y):
    """Return k and z (m,), both finite for predictors of any size."""
    k = np.exp(np.clip(eta[1], -300.0, 300.0))
    return k, np.clip(k * (np.log(y) - eta[0]), -1e15, 300.0)


def log_lik(eta, y):
    """Return the log densities (m,)."""
    _, z = shape_and_z(eta, y)
    return eta[1] + z - np.log(y) - np.exp(z)


def gradient(eta, y):
    """Return the derivatives (2, m)."""
    k, z = shape_and_z(eta, y)
    return np.array([-k * (1.0 - np.exp(z)), 1.0 + z * (1.0 - np.exp(z))])


def hessian(eta, y):
    """Return the second derivatives (2, 2, m)."""
    k, z = shape_and_z(eta, y)
    e = np.exp(z)
    mixed = -k * (1.0 - e) + k * z * e
    return np.array([[-k * k * e, mixed], [mixed, z * (1.0 - e) - z * z * e]])


def mean(eta):
    """Return the mean responses (m,)."""
    return np.exp(eta[0]) * gamma_function(1.0 + np.exp(-eta[1]))


def simulate_responses(eta, rng):
    """Return simulated responses (m,)."""
    return np.exp(eta[0]) * rng.weibull(np.exp(eta[1]))


parameters = [
    Parameter("beta", per_feature=True, table_scale="coefficient", exponential="scale ratio"),
    Parameter("shape", support="positive", default=half_normal(5.0)),
]
common = {
    "parameters": parameters,
    "response": lambda y: y > 0.0,
    "mean": mean,
    "simulate": simulate_responses,
}
plain = user("weibull", log_lik=log_lik, gradient=gradient, hessian=hessian, **common)

# %% [markdown]
# ## The check
#
# `check_model` compares derivatives with differences, and moments of simulated responses with the
# likelihood. It also tries predictors up to 10,000: without the two limits in `shape_and_z` an
# infinite shape times a zero is not a number, and this check fails.

# %%
report = check_model(plain)
print(report)
assert report.passed

# %% [markdown]
# A sign slip in the gradient fails the check. It is refused before a full pass as well, so that
# nobody has to remember the check.

# %%
slip = user(
    "weibull",
    log_lik=log_lik,
    gradient=lambda eta, y: gradient(eta, y) * np.array([[-1.0], [1.0]]),
    hessian=hessian,
    **common,
)
failed = [each.name for each in check_model(slip).findings if not each.passed]
print("check_model:", failed)
assert failed

table = pd.read_csv(demo_data.path())
formula = "missing_energy_magnitude ~ bs(lepton_pT, df=5) + jet_1_pt + jet_2_pt + m_jj + signal"
store = streammc.from_table(table, formula=formula, seed=1)
try:
    streammc.sample(store, slip, seed=1)
except ModelError as error:
    print("sample:", error)
else:
    raise AssertionError("the wrong gradient was sampled")

# %% [markdown]
# ## The same, compiled
#
# A link kernel writes value, gradient and Hessian (upper triangle, by rows) of every row into
# `out`. It avoids the cost of a Python call, and chains run side by side.


# %%
@numba.njit
def link(eta, X, y, constants, order, out):
    """Write log densities and derivatives up to ``order`` into ``out`` (6, m)."""
    for i in range(y.shape[0]):
        k = np.exp(min(max(eta[1, i], -300.0), 300.0))
        z = min(max(k * (np.log(y[i]) - eta[0, i]), -1e15), 300.0)
        e = np.exp(z)
        out[0, i] = eta[1, i] + z - np.log(y[i]) - e
        if order > 0:
            out[1, i] = -k * (1.0 - e)
            out[2, i] = 1.0 + z * (1.0 - e)
        if order > 1:
            out[3, i] = -k * k * e
            out[4, i] = -k * (1.0 - e) + k * z * e
            out[5, i] = z * (1.0 - e) - z * z * e


compiled = user("weibull-compiled", link=link, **common)
assert check_model(compiled).passed

# %% [markdown]
# ## The posterior
#
# Both models have the same posterior; means agree within Monte Carlo errors. Seconds of the
# processor differ.

# %%
folder = Path(tempfile.mkdtemp(prefix="weibull-"))
runs, seconds = {}, {}
for model in (plain, compiled):
    words = {"sampler": samplers.hmc(), "draws": 500, "warmup": 500, "seed": 1}
    with warnings.catch_warnings():  # ten draws compile what is needed, and say that they are few
        warnings.simplefilter("ignore")
        streammc.sample(store, model, **(words | {"draws": 10, "warmup": 10}))
    began = time.process_time()
    runs[model.name] = streammc.sample(store, model, path=folder / model.name, **words)
    seconds[model.name] = time.process_time() - began
print({name: f"{used:.1f} processor seconds" for name, used in seconds.items()})
run = runs["weibull-compiled"]
found, same = (
    streammc.facts(runs[name])["summary"]["parameters"] for name in ("weibull-compiled", "weibull")
)
for label, value in found.items():
    error = np.hypot(value["mcse_mean"], same[label]["mcse_mean"])
    assert abs(value["mean"] - same[label]["mean"]) < 4.5 * error, label
assert 1.0 < found["shape"]["q5"] < found["shape"]["q95"] < 2.0
pd.DataFrame(found).T[["mean", "sd", "q5", "q95", "ess_bulk", "r_hat"]].astype(float).round(3)

# %% [markdown]
# The shape is well above 1, the exponential distribution, and below 2. Coefficients per unit of the
# table are in `posterior`; the exponential of that of `signal` is a ratio of scales.

# %%
ratio = np.exp(run["posterior"]["beta"].sel(feature="signal"))
low, high = ratio.quantile([0.05, 0.95]).values
print(f"missing energy where a Higgs boson was made: {low:.3f} to {high:.3f} times (90 %)")
shown = {"feature": ["jet_1_pt", "jet_2_pt", "m_jj", "signal"]}
azp.plot_forest(
    run,
    var_names="beta",
    coords=shown,
    combined=True,
    labels=["feature"],
    figure_kwargs={"figsize": (7, 2.5)},
)
plt.show()

# %% [markdown]
# ## Predictions
#
# `mean` allows predictions, `simulate` replicated responses. Missing energy falls with the
# momentum of the lepton, and not linearly: the spline follows it.

# %%
fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
predictions = streammc.predict(run, store, model=compiled, by="lepton_pT", bins=20)
streammc.plots.plot_by_covariate(predictions, ax=ax)
ax.set_ylabel("mean missing energy")
plt.show()
gap = abs(predictions["group_realised"] / predictions["group_mean"] - 1.0)
print(f"largest gap {float(gap.max()):.1%}")
assert gap.max() < 0.1

# %% [markdown]
# Densities of replicated responses, and of the observed ones (black).

# %%
check = streammc.posterior_predictive(run, store, rows=2000, draws=100, seed=1, model=compiled)
azp.plot_ppc_dist(check, num_samples=50, figure_kwargs={"figsize": (6, 4)})
plt.show()
