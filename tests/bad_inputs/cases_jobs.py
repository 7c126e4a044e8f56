"""Cases: job files and stopping rules."""

CASES = r"""
streammc run
streammc run nowhere.toml
streammc run flights.zarr
streammc run job-broken.toml
streammc check job-key.toml --quiet
streammc check job-table.toml --quiet
streammc check job-type.toml --quiet
streammc check job-range.toml --quiet
streammc check job-large.toml --quiet
streammc check job-list.toml --quiet
streammc check job-word.toml --quiet
streammc check job-twice.toml --quiet
streammc check job-missing-key.toml --quiet
streammc check job-missing-table.toml --quiet
streammc check job-no-file.toml --quiet
streammc check job-both.toml --quiet
streammc check job-no-store.toml --quiet
streammc check job-no-output.toml --quiet
streammc check job-same-output.toml --quiet
streammc check job-reserved.toml --quiet
streammc check job-rows.toml --quiet
streammc check job-far-report.toml --quiet
streammc check job-far-run.toml --quiet
streammc check job-predict.toml --quiet
streammc check job-stop.toml --quiet
streammc check job-prior.toml --quiet
streammc check job-model.toml --quiet
streammc check job-code.toml --quiet
streammc check job-sampler.toml --quiet
streammc check job-option.toml --quiet
streammc check job-column.toml --quiet
streammc check job-feature.toml --quiet
streammc check job-formula.toml --quiet
streammc check job-syntax.toml --quiet
streammc check job-text.toml --quiet
streammc check job-other-store.toml --quiet
streammc check job-append.toml --quiet
streammc check job-generation.toml --quiet
streammc check job-grown-store.toml --quiet
streammc check job-folder.toml --quiet
streammc run job-other-run.toml --quiet
streammc run job-other-store.toml --quiet
streammc check job-broken.toml
streammc check
streammc check nowhere.toml
streammc run job-key.toml --scheduler banana
streammc sample flights.zarr -o new --model logistic --stop time=2h
streammc sample flights.zarr -o new --model logistic --stop speed=3
streammc sample flights.zarr -o new --model logistic --stop ess
streammc sample flights.zarr -o new --model logistic --stop ess=1,ess=2
streammc sample flights.zarr -o new --model logistic --stop rhat=0.9
streammc sample flights.zarr -o new --model logistic --stop ess=0
streammc sample flights.zarr -o new --model logistic --stop ess=1,time=soon
streammc sample flights.zarr -o new --model logistic --stop ess=1,draws=1.5
streammc sample flights.zarr -o new --model logistic --draws 100 --stop ess=1,draws=50
streammc sample flights.zarr -o new --model logistic --sampler laplace --stop ess=100
streammc sample flights.zarr -o new --model logistic --stop ess=100 --stop rhat=1.1
streammc.sample(store, logistic, stop="time=2h")
streammc.sample(store, logistic, stop=1000)
streammc.sample(store, logistic, stop={"ess": -1})
streammc.sample(store, logistic, stop={"ess": True})
streammc.sample(store, logistic, sampler=samplers.laplace(), stop="ess=100")
"""
