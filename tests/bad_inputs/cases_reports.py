"""Cases: ``streammc report`` and ``streammc.plots``."""

CASES = r"""
streammc report nowhere -o report.html
streammc report flights.zarr -o report.html
streammc report warming -o report.html
streammc report byte-run -o report.html
streammc report run -o file
streammc report run -o file --overwrite
streammc report run -o nowhere/report.html
streammc report run nowhere.zarr -o report.html
streammc report run other.zarr -o report.html
streammc report run -o report.html --predictions nowhere.zarr
streammc report run -o report.html --predictions flights.zarr
streammc report other-run -o report.html --predictions predictions.zarr
streammc report run
streammc.plots.plot_statistic(streammc.open_run("run"))
streammc.plots.plot_statistic(xr.DataTree())
streammc.plots.plot_audit_weights(streammc.open_run("run"))
streammc.plots.plot_ladder(streammc.open_run("run"))
streammc.plots.plot_by_covariate(xr.open_zarr("predictions.zarr"))
streammc.plots.plot_roc(xr.open_zarr("predictions.zarr")[["mean"]])
streammc.plots.plot_statistic("run")
streammc.plots.plot_ladder("run")
streammc.plots.plot_roc("predictions.zarr")
"""
