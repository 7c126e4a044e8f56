"""Cases: runs, control variates and predictions that are missing, foreign or damaged."""

CASES = r"""
streammc info byte-cv.zarr
streammc predict run flights.zarr -o full --overwrite
streammc info no-array-cv.zarr
streammc info old-cv.zarr
streammc info shapes-cv.zarr
streammc info types-cv.zarr
streammc info old-run
streammc info counts-run
streammc info keys-run
streammc info labels-run
streammc info edited-run
streammc diagnose nowhere
streammc diagnose flights.zarr
streammc diagnose cv.zarr
streammc diagnose predictions.zarr
streammc diagnose file
streammc diagnose nothing
streammc diagnose byte-run
streammc diagnose short-run
streammc diagnose long-run
streammc diagnose no-draws-run
streammc diagnose no-constant-run
streammc diagnose no-root-run
streammc diagnose warming
streammc diagnose run --check rhat
streammc diagnose run --check rhat=low
streammc diagnose run --check speed=3
streammc resume nowhere
streammc resume flights.zarr
streammc resume no-checkpoint-run --draws 30
streammc resume checkpoint-run --draws 30
streammc resume run --draws ten
streammc resume other-run-model
streammc resume other-store-run
streammc resume memory-run --draws 30
streammc compare
streammc compare run nowhere
streammc compare run other-run
streammc compare run warm
streammc compare run warming
streammc audit nowhere
streammc audit flights.zarr
streammc audit warming
streammc audit memory-run
streammc sample flights.zarr -o run --model logistic --sampler hmc --seed 2 --draws 20 --warmup 20 --chains 2
streammc sample flights.zarr -o run --model probit
streammc sample other.zarr -o run --model logistic
streammc sample flights.zarr -o new --model logistic --control-variates byte-cv.zarr
streammc sample flights.zarr -o new --model logistic --control-variates nowhere.zarr
streammc sample flights.zarr -o new --model logistic --control-variates flights.zarr
streammc sample flights.zarr -o new --model logistic --control-variates run
streammc sample other.zarr -o new --model logistic --control-variates cv.zarr
streammc sample flights.zarr -o new --model probit --control-variates cv.zarr
streammc sample flights.zarr -o new --model logistic --control-variates cv.zarr --temperature 2
streammc info no-array-predictions.zarr/mean
streammc.open_run("nowhere")
streammc.open_run("flights.zarr")
streammc.open_run("cv.zarr")
streammc.open_run(None)
streammc.open_run(3)
streammc.open_run("")
streammc.open_run("byte-run")
streammc.open_run("edited-run")
streammc.open_run("file")
streammc.facts("run")
streammc.facts(None)
streammc.diagnostics.summarize("run")
streammc.diagnostics.summarize(None)
streammc.diagnostics.summarize("nowhere")
streammc.diagnostics.summarize(np.zeros((2, 20)))
streammc.diagnostics.intraclass_correlation("run")
streammc.diagnostics.intraclass_correlation(streammc.open_run("run"))
streammc.diagnostics.inefficiency(None)
streammc.diagnostics.inefficiency("run")
streammc.diagnostics.pareto_k("weights")
streammc.diagnostics.pareto_k(np.full(100, np.nan))
streammc.diagnostics.audit_weights(np.full((2, 20), np.inf))
streammc.diagnostics.audit_weights("run")
streammc.control_variates.ControlVariates.open("nowhere")
streammc.control_variates.ControlVariates.open(3)
streammc.control_variates.ControlVariates.open("run")
streammc.control_variates.ControlVariates.open("file")
streammc.control_variates(store, logistic).save("file")
streammc.control_variates(store, logistic).save("full")
streammc.control_variates(store, logistic).save("file/inner")
streammc compare warming
streammc resume gone-run --draws 40
streammc info kind-cv.zarr
streammc info keys-cv.zarr
streammc info rows-cv.zarr
streammc.diagnostics.audit_weights(np.zeros((2, 20, 1)), np.full((2, 20), np.inf), ["hour"])
streammc.diagnostics.summarize(xr.DataTree.from_dict({"posterior": xr.Dataset({"a": (("chain", "draw"), np.zeros((2, 20)))}), "sample_stats": xr.Dataset({"sign": (("chain", "draw"), -np.ones((2, 20)))})}), plain=True)
streammc.open_run("cv.zarr/hessian")
streammc info kind-predictions.zarr
"""
