"""Cases: ``streammc.posterior_predictive``."""

CASES = r"""
streammc.posterior_predictive("nowhere", store)
streammc.posterior_predictive("run", "flights.zarr")
streammc.posterior_predictive("run", store, rows=0)
streammc.posterior_predictive("run", store, draws=1)
streammc.posterior_predictive("run", store, model=models.poisson())
streammc.posterior_predictive("run", streammc.open_store("other.zarr"))
streammc.posterior_predictive("warm", store)
streammc.posterior_predictive("warming", streammc.open_store("big.zarr"))
streammc.posterior_predictive("groups-run", store)
streammc.posterior_predictive("mean-run", streammc.open_store("column.zarr"))
"""
