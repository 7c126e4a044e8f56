"""Cases: commands, options, configuration files."""

CASES = r"""
streammc sampel
streammc banana
streammc --verbose
streammc sample
streammc sample flights.zarr
streammc sample flights.zarr -o new
streammc sample flights.zarr -o new --model logit
streammc sample flights.zarr -o new --model banana
streammc sample flights.zarr -o new --model logistic --draw 10
streammc sample flights.zarr -o new --model logistic --banana
streammc sample flights.zarr -o new --model logistic --draws
streammc sample flights.zarr -o new --model logistic --draws 0
streammc sample flights.zarr -o new --model logistic --draws -5
streammc sample flights.zarr -o new --model logistic --draws ten
streammc sample flights.zarr -o new --model logistic --draws 1.5
streammc sample flights.zarr -o new --model logistic --draws 1000000000000
streammc sample flights.zarr -o new --model logistic --warmup -1
streammc sample flights.zarr -o new --model logistic --chains 0
streammc sample flights.zarr -o new --model logistic --seed -1
streammc sample flights.zarr -o new --model logistic --seed one
streammc sample flights.zarr -o new --model logistic --sampler hmcc
streammc sample flights.zarr -o new --model logistic --sampler banana
streammc sample flights.zarr -o new --model logistic --sampler nuts
streammc sample flights.zarr -o new --model logistic --option draws
streammc sample flights.zarr -o new --model logistic --option banana=1
streammc sample flights.zarr -o new --model logistic --option nodes=9
streammc sample flights.zarr -o new --model logistic --option jitter=0.1 --option jitter=0.2
streammc sample flights.zarr -o new --model logistic --sampler hmc --step-size 0.1 --option step_size=0.2
streammc sample flights.zarr -o new --model logistic --sampler hmc --option jitter=far
streammc sample flights.zarr -o new --model logistic --sampler hmc --option target_acceptance=2
streammc sample flights.zarr -o new --model logistic --sampler hmc --step-size 0
streammc sample flights.zarr -o new --model logistic --sampler hmc --step-size small
streammc sample flights.zarr -o new --model logistic --sampler hmc --subsample-size 10
streammc sample flights.zarr -o new --model logistic --sampler hmc-ecs --subsample-size 1000
streammc sample flights.zarr -o new --model logistic --sampler hmc-ecs --unit-rows 1000
streammc sample flights.zarr -o new --model logistic --sampler hmc-ecs --n-blocks 1000
streammc sample flights.zarr -o new --model logistic --sampler hmc-ecs --subsample-size 10 --unit-rows 10
streammc sample flights.zarr -o new --model logistic --temperature 0
streammc sample flights.zarr -o new --model logistic --temperature hot
streammc sample flights.zarr -o new --model logistic --temperature 1:sqrt
streammc sample flights.zarr -o new --model logistic --temperature 4:0 --sampler mh
streammc sample flights.zarr -o new --model logistic --temperature 4:sqrt --sampler hmc
streammc sample flights.zarr -o new --model logistic --scheduler banana
streammc sample flights.zarr -o new --model logistic --scheduler -1
streammc sample flights.zarr -o new --model logistic --scheduler tcp://localhost:1
streammc sample flights.zarr -o new --model logistic --scheduler tcp://localhost
streammc sample flights.zarr -o new --model logistic --scheduler tcp://192.0.2.1:8786
streammc sample flights.zarr -o new --model logistic --scheduler nothing.json
streammc sample flights.zarr -o new --model logistic --scheduler wrong.json
streammc sample flights.zarr -o new --model logistic --chains-on workers
streammc sample flights.zarr -o new --model logistic --check speed=3
streammc sample flights.zarr -o new --model logistic --check rhat
streammc sample flights.zarr -o new --model logistic --check rhat=1.01 --check ess=400
streammc sample flights.zarr -o new --model logistic --prior 'normol(0, 1)'
streammc sample flights.zarr -o new --model logistic --prior 'normal(0, -1)'
streammc sample flights.zarr -o new --model logistic --prior 'week=normal(0, 1)'
streammc sample flights.zarr -o new --model logistic --prior 'hour=normal(0, 1)' --prior 'hour=normal(0, 2)'
streammc sample flights.zarr -o new --model logistic --prior 'hour=half_normal(1)'
streammc sample flights.zarr -o new --model logistic --prior 'hour'
streammc sample flights.zarr -o new --model logistic --prior '=normal(0, 1)'
streammc sample flights.zarr -o new --model logistic --prior-scale 0
streammc sample flights.zarr -o new --model logistic --prior-scale wide
streammc sample flights.zarr -o new --model poisson --option power=2
streammc sample flights.zarr -o new --model student-t --option df=0
streammc sample flights.zarr -o new --model own:build
streammc sample flights.zarr -o new --model own:nothing --allow-code
streammc sample flights.zarr -o new --model nowhere:build --allow-code
streammc sample flights.zarr -o new --model faulty:build --allow-code
streammc sample flights.zarr -o new --model own:NOTHING --allow-code
streammc sample flights.zarr -o new --model own:wrong_gradient --allow-code
streammc sample flights.zarr -o new --model own:wrong_shape --allow-code
streammc sample flights.zarr -o file --model logistic
streammc sample flights.zarr -o file/new --model logistic
streammc sample flights.zarr -o full --model logistic
streammc sample flights.zarr -o flights.zarr --model logistic
streammc sample flights.zarr -o s3://key:secret@bucket/run --model logistic
streammc sample flights.zarr -o ftp://host/run --model logistic
streammc summarize flights.zarr -o s3://bucket/cv --model logistic
streammc sample nowhere.zarr -o new --model logistic
streammc sample run -o new --model logistic
streammc sample flights.csv -o new --model logistic
streammc sample plain.zarr -o new --model logistic
streammc sample counts.zarr -o new --model logistic
streammc sample flights.zarr -o new --model gaussian-process --sampler hmc
streammc sample flights.zarr -o new --model gaussian-mixture-free
streammc sample big.zarr -o new --model gaussian-process --sampler pt
streammc summarize flights.zarr
streammc summarize flights.zarr --model logistic --passes 0
streammc summarize flights.zarr --model logistic --order 3
streammc summarize flights.zarr --model logistic -o flights.zarr
streammc summarize flights.zarr --model logistic -o file
streammc summarize flights.zarr --model logistic -o cv.zarr --order 1
streammc summarize flights.zarr --model logistic -o full
streammc summarize nowhere.zarr --model logistic
streammc sample flights.zarr -o new --model logistic --config nowhere.toml
streammc sample flights.zarr -o new --model logistic --config wrong.toml
streammc sample flights.zarr -o new --model logistic --config unknown.toml
streammc sample flights.zarr -o new --model logistic --config value.toml
streammc sample flights.zarr -o new --model logistic --config table.toml
streammc sample flights.zarr -o new --model logistic --config twice.toml
streammc sample flights.zarr -o new --model logistic --config large.toml
streammc sample flights.zarr -o new --model logistic --config full
streammc models extra
streammc demo file
streammc summarize flights.zarr --model logistic --option power=2
streammc gc nowhere
streammc gc flights.csv
streammc gc s3://bucket/here
"""
