# make demo: make .venv, install, run the main job on the data set that ships with the package.
# make test: the same set-up if needed, then the tests of a few seconds; make test-all: the slow ones too.
# Needs Python 3.11 or later with its venv module, and make. PYTHON=... chooses another Python.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin

ifndef PYTHON
PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
endif

# A file of tests shares what its first test has sampled: it stays in one process, and the files begin
# in the order of tests/conftest.py. nproc counts the cores that this process may use, auto those of the
# machine.
PARALLEL := -n $(shell nproc 2>/dev/null || echo auto) --dist loadfile --no-loadscope-reorder

# Files of tests are many and small. On a disk they cost fsync and unlink, 4.7 and 1.0 ms each, in memory
# 0.02 ms: half of the time of a test.
IN_MEMORY := $(shell test "$$(awk '/^MemAvailable/ {print $$2}' /proc/meminfo 2>/dev/null || echo 0)" -gt 8000000 && \
	test "$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 8000000 && echo yes)
PYTEST := $(if $(IN_MEMORY),TMPDIR=/dev/shm) $(BIN)/python -m pytest \
	$(if $(IN_MEMORY),-o tmp_path_retention_policy=failed -o tmp_path_retention_count=1)

# Rewriting the assertions of all test files takes 13 CPU seconds in every process that does not find them.
export PYTHONDONTWRITEBYTECODE :=

DRAWING := tests/samplers/test_joint_invariance.py tests/samplers/test_own_target.py \
	tests/samplers/metropolis/test_metropolis.py tests/samplers/hamiltonian/test_signed.py tests/samplers/metropolis/test_mh.py \
	tests/likelihood/test_difference_estimator.py tests/samplers/tempering/test_joint_parallel.py \
	tests/runs/test_invariance.py tests/runs/test_chains.py tests/cli/test_sample.py
define NEW_VENV
@test -n "$(PYTHON)" || { echo "make: expected Python 3.11 or later, found none; \
install it or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
$(PYTHON) -m venv $(VENV)
endef
ONE_CORE := $(if $(shell command -v taskset),taskset -c 0)
TESTS := tests

NOTEBOOKS := $(wildcard notebooks/*.py)

.PHONY: demo kernels test test-covered test-others test-slow test-all test-odd test-lowest trust edges lint format types contracts doctest notebook sync-notebooks docs browser dist lock audit sbom clean

demo: $(VENV)/.compiled
	$(BIN)/streammc demo

# Every kernel is compiled once here, by two processes, and not once in every process of the tests.
LOAD := $(BIN)/python -m streammc.numerics.compile_ahead

kernels: $(VENV)/.installed-test
	$(LOAD)

test: $(VENV)/.installed-test
	$(LOAD)
	$(PYTEST) -m "not slow" $(PARALLEL) $(PYTEST_OPTIONS)

# All tests in two parts: those traced for coverage, and all others. Tracing takes a multiple of the
# time, so it is for a few folders; pyproject.toml names the packages they are of.
# 95.6 % with the public data sets; the floor leaves room for machines without them.
COVERED := tests/stores/format tests/stores/rows tests/stores/cloud tests/stores/foreign \
	tests/stores/ingest/test_append.py tests/diagnostics tests/priors \
	tests/trace tests/trust/test_debris.py
LEAST_COVERAGE := 93
# Python 3.11 may fail to start a thread while another one begins to be traced; the pool goes on.
UNTRACED := -W "ignore:Exception ignored in thread started by:pytest.PytestUnraisableExceptionWarning"

test-covered: $(VENV)/.installed-test
	$(LOAD)
	$(PYTEST) $(PARALLEL) --cov --cov-report=term:skip-covered \
		--cov-fail-under=$(LEAST_COVERAGE) $(UNTRACED) $(COVERED)

test-others: $(VENV)/.installed-test
	$(LOAD)
	$(PYTEST) $(PARALLEL) $(COVERED:%=--ignore=%) $(PYTEST_OPTIONS)

test-slow: $(VENV)/.installed-test
	$(LOAD)
	$(PYTEST) -m slow $(PARALLEL) $(PYTEST_OPTIONS)

test-all: $(VENV)/.installed-test
	$(LOAD)
	$(PYTEST) $(PARALLEL) $(PYTEST_OPTIONS)

# Tests that draw, as on another machine: an older processor, one core, no public data sets.
# Rounding differs there, and with it every draw.
test-odd: $(VENV)/.installed-test
	NUMBA_CPU_NAME=generic OPENBLAS_CORETYPE=Haswell STREAMMC_TEST_DATA=absent $(ONE_CORE) \
		env $(PYTEST) -m "not slow" $(PYTEST_OPTIONS) $(DRAWING)

# The lowest versions that pyproject.toml allows, in an environment of their own: README's commands, and
# tests of what reads tables, stores and options. Needs network.
LOWEST := $(VENV)/lowest
LOWEST_TESTS := tests/docs/test_shown.py tests/test_help.py tests/trace/test_layout.py \
	tests/stores/formula tests/stores/sources tests/stores/rows/test_groups.py tests/stores/format/test_verify.py
test-lowest: $(LOWEST)/.installed
	$(LOWEST)/bin/python -m pytest -p no:cacheprovider $(LOWEST_TESTS) $(PARALLEL:loadfile=worksteal) $(PYTEST_OPTIONS)

$(LOWEST)/.installed: pyproject.toml
	$(NEW_VENV)
	$(BIN)/python -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(LOWEST)/bin/uv pip compile --quiet --upgrade --resolution lowest-direct --only-binary :all: \
		--python $(LOWEST)/bin/python --extra cloud --extra distributed --extra plots \
		pyproject.toml -o $(LOWEST)/lowest.txt
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --only-binary :all: \
		-r $(LOWEST)/lowest.txt duckdb h5netcdf h5py hypothesis packaging polars pytest pytest-timeout pytest-xdist
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --no-deps --editable .
	@touch $@

# Every check of docs/measurements/trust.md at its full counts, one after another, and its table:
# make trust, or make trust CHECKS="17 20".
trust: $(VENV)/.installed-test
	$(LOAD)
	$(BIN)/python bench/trust.py --write $(if $(CHECKS),--checks $(CHECKS))

# Statistical assertions near their bound, over three seeds: make edges TESTS=tests/samplers.
edges: $(VENV)/.installed-test
	$(BIN)/python tests/edges.py $(PARALLEL) $(TESTS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.installed-dev
	$(BIN)/mypy --strict

contracts: $(VENV)/.installed-dev
	$(BIN)/lint-imports

doctest: $(VENV)/.installed-test
	$(BIN)/python -m pytest --doctest-modules --doctest-glob='*.md' --ignore=docs/site streammc docs

# Executed in a copy, so that the committed notebooks keep no outputs.
notebook: $(VENV)/.installed-dev
	@for script in $(NOTEBOOKS); do \
		copy=$$(mktemp -d)/$$(basename $$script .py).ipynb; \
		echo "executing $$script"; \
		$(BIN)/jupytext --quiet --to ipynb --output $$copy $$script && \
		$(BIN)/jupyter-execute --timeout=300 $$copy || exit 1; \
	done

# After an edit of notebooks/*.py: write the paired .ipynb again, without outputs.
sync-notebooks: $(VENV)/.installed-dev
	@for script in $(NOTEBOOKS); do \
		$(BIN)/jupytext --quiet --update --to ipynb --output $${script%.py}.ipynb $$script || exit 1; \
	done

# The site, in build/site: warnings are errors, and so are links and anchors that lead nowhere.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# The report and the site in a headless Chromium, with axe-core: skipped where they cannot be had.
browser: $(VENV)/.installed-docs $(VENV)/.installed-test
	$(BIN)/python .ci/browser.py
	$(BIN)/python -m pytest -rs tests/bench/test_report_page.py tests/docs/test_site.py

dist: $(VENV)/.installed-dev
	$(BIN)/python -m build --outdir dist .

# Needs network. lock: pin the newest packages that pyproject.toml allows, with their hashes. audit: those
# with known weaknesses. sbom: what a release was made with, as CycloneDX.
RELEASE := $(VENV)/release/bin
$(VENV)/release: pyproject.toml
	$(NEW_VENV)
	$(BIN)/python -m venv $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom pip-audit uv
	@touch $@

lock: $(VENV)/release
	$(RELEASE)/uv pip compile --upgrade --universal --no-strip-extras --python-version 3.11 --generate-hashes --quiet \
		--custom-compile-command "make lock" --extra dev --extra docs \
		pyproject.toml -o requirements/ci.lock

audit: $(VENV)/release
	$(RELEASE)/pip-audit --disable-pip --require-hashes -r requirements/ci.lock

sbom: $(VENV)/release
	mkdir -p dist
	$(RELEASE)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible \
		-o dist/sbom.json requirements/ci.lock

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# numba compiles each kernel once and keeps it in ~/.cache/streammc; done here, a command starts at
# once. An edit of the sources compiles again by itself.
$(VENV)/.compiled: $(VENV)/.installed-run
	@echo "compiling once, about a minute"
	@$(BIN)/python -m streammc.numerics.compile_ahead streammc.samplers.hamiltonian.kernel \
		streammc.control_variates.full_pass.block_kernel streammc.models.glm.bernoulli_logit \
		streammc.stores.rows.row_source
	@touch $@

# As a user installs; a change of pyproject.toml installs again.
$(VENV)/.installed-run: pyproject.toml
	$(NEW_VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# The tools and tests of the project, with every package pinned by the hash of its files.
LOCKED := $(VENV)/.installed-test $(VENV)/.installed-dev $(VENV)/.installed-docs
$(LOCKED): pyproject.toml requirements/ci.lock
	$(NEW_VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements/ci.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(LOCKED)
