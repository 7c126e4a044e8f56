"""streammc: Bayesian inference by MCMC on tables that do not fit in memory.

Public names are imported on first use, so that importing the package itself takes no time.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from streammc import diagnostics, models, plots, priors, samplers, scorer
    from streammc.averages import comparisons, predictions, slopes
    from streammc.checks.posterior_predictive import prior_predictive
    from streammc.comparison import compare, loo
    from streammc.control_variates import compute as control_variates
    from streammc.fitting import fit
    from streammc.frames import posterior_predictive, predict, score
    from streammc.prediction.effect_draws import effect_draws
    from streammc.prediction.group_summaries import effects
    from streammc.runs.interactive import notebook_bar, sample
    from streammc.scorer import export
    from streammc.stores.ingest.append import append
    from streammc.stores.ingest.from_dask import from_dask
    from streammc.stores.ingest.from_xarray import from_xarray
    from streammc.stores.ingest.ingestion import from_table, ingest
    from streammc.stores.memory import from_arrays
    from streammc.stores.simulation import simulate
    from streammc.stores.store import open_store
    from streammc.trace import facts, open_run

__version__: Final = "0.1.0"

_LAZY: Final[dict[str, str]] = {
    "append": "streammc.stores.ingest.append:append",
    "calibration": "streammc.frames:calibration",
    "compare": "streammc.comparison:compare",
    "comparisons": "streammc.averages:comparisons",
    "control_variates": "streammc.control_variates",
    "diagnostics": "streammc.diagnostics",
    "effect_draws": "streammc.prediction.effect_draws:effect_draws",
    "effects": "streammc.prediction.group_summaries:effects",
    "export": "streammc.scorer:export",
    "facts": "streammc.trace:facts",
    "fit": "streammc.fitting:fit",
    "from_arrays": "streammc.stores.memory:from_arrays",
    "from_dask": "streammc.stores.ingest.from_dask:from_dask",
    "from_table": "streammc.stores.ingest.ingestion:from_table",
    "from_xarray": "streammc.stores.ingest.from_xarray:from_xarray",
    "ingest": "streammc.stores.ingest.ingestion:ingest",
    "loo": "streammc.comparison:loo",
    "models": "streammc.models",
    "notebook_bar": "streammc.runs.interactive:notebook_bar",
    "open_run": "streammc.trace:open_run",
    "open_store": "streammc.stores.store:open_store",
    "plots": "streammc.plots",
    "posterior_predictive": "streammc.frames:posterior_predictive",
    "predict": "streammc.frames:predict",
    "predictions": "streammc.averages:predictions",
    "prior_predictive": "streammc.checks.posterior_predictive:prior_predictive",
    "priors": "streammc.priors",
    "residuals": "streammc.frames:residuals",
    "sample": "streammc.runs.interactive:sample",
    "samplers": "streammc.samplers",
    "score": "streammc.frames:score",
    "scorer": "streammc.scorer",
    "simulate": "streammc.stores.simulation:simulate",
    "slopes": "streammc.averages:slopes",
}

__all__ = [
    "append",
    "calibration",
    "compare",
    "comparisons",
    "control_variates",
    "diagnostics",
    "effect_draws",
    "effects",
    "export",
    "facts",
    "fit",
    "from_arrays",
    "from_dask",
    "from_table",
    "from_xarray",
    "ingest",
    "loo",
    "models",
    "notebook_bar",
    "open_run",
    "open_store",
    "plots",
    "posterior_predictive",
    "predict",
    "predictions",
    "prior_predictive",
    "priors",
    "residuals",
    "sample",
    "samplers",
    "score",
    "scorer",
    "simulate",
    "slopes",
]


def __getattr__(name: str) -> Any:
    """Import the public name ``name`` on first use."""
    if name not in _LAZY:
        raise AttributeError(
            f"module 'streammc' has no attribute {name!r}: it has {', '.join(__dir__())}",
            name=name,
            obj=sys.modules[__name__],
        )
    module, _, attribute = _LAZY[name].partition(":")
    found = import_module(module)
    return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    """List the public names."""
    return sorted([*__all__, "__version__"])
