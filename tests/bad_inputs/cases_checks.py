"""Cases: ``streammc.posterior_predictive``, ``streammc.score`` and their commands."""

CASES = r"""
streammc.posterior_predictive("nowhere", store)
streammc.posterior_predictive("run", "none.zarr")
streammc.posterior_predictive("run", store, rows=0)
streammc.posterior_predictive("run", store, draws=1)
streammc.posterior_predictive("run", store, model=models.poisson())
streammc.posterior_predictive("run", streammc.open_store("other.zarr"))
streammc.posterior_predictive("warm", store)
streammc.residuals("nowhere", store)
streammc.residuals("run", store, rows=0)
streammc.residuals("run", store, draws=1)
streammc.residuals("run", streammc.from_arrays(X, feature_names=store.feature_names))
streammc.calibration("run", store, bins=0)
streammc.calibration("run", store, bins="ten")
streammc.calibration("run", store, interval=90)
streammc.calibration("run", store, rows=-1)
streammc.posterior_predictive("warming", streammc.open_store("big.zarr"))
streammc.posterior_predictive("groups-run", store)
streammc.posterior_predictive("mean-run", streammc.open_store("column.zarr"))
streammc.score("nowhere", store)
streammc.score("run", frame)
streammc.score("run", store, rows=10)
streammc.score("run", store, draws=10)
streammc.score("run", store, seed="one")
streammc.score("run", store)
streammc.score("run", streammc.open_store("raw.zarr"))
streammc.score("warm", store)
streammc score nowhere
streammc score run nowhere.zarr
streammc score run other.zarr
streammc score run
streammc score run -o flights.csv
streammc score run -o nowhere/score.json
streammc score run --score-draws 10
streammc score run --score-rows all
streammc score warming
streammc score memory-run
streammc score gone-run
streammc compare run other-run
streammc compare --loo
streammc compare --loo run nowhere
streammc compare run --score-rows 500
streammc compare --loo run groups-run
streammc compare --loo run mean-run
streammc compare --loo run gone-run
streammc compare --loo run other-run
"""
