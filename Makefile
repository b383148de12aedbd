# Two commands do everything: `make score` compares the reference agents, `make test` runs the tests.

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

.PHONY: help score test test-slow test-rl lint bench verify-all wheel clean

help:  ## Show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.venv/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fleetgym needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

.venv/ready-dev: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

score: .venv/ready  ## Compare the reference agents on a day of each fleet-v0/dev instance (under 4 minutes)
	$(BIN)/fleetgym warmup
	$(BIN)/fleetgym compare --workers $(WORKERS) --scenarios 0

test: .venv/ready-dev  ## Run the tests and the doctests
	$(BIN)/fleetgym warmup
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow and not rl" --doctest-modules tests fleetgym baselines

test-slow: .venv/ready-dev  ## Run the slow proofs: tens of thousands of LPs, whole suites against the reference
	$(BIN)/python -m pytest -n $(WORKERS) -m slow tests

test-rl: .venv/ready-dev  ## Run the checks that need stable-baselines3 (installs it, with PyTorch)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[rl]'
	$(BIN)/python -m pytest -m rl tests

lint: .venv/ready-dev  ## Check style, docstrings and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/ready-dev  ## Measure the kernels against their peers, as ratios within one run
	$(BIN)/python tests/benchmarks/bench_routing.py
	$(BIN)/python tests/benchmarks/bench_queueing.py
	PYTHONPATH=tests/baselines $(BIN)/python tests/benchmarks/bench_agh.py

verify-all: .venv/ready-dev  ## Replay every stored task through the independent reference evaluator
	$(BIN)/python -m tools.verify_all --workers $(WORKERS)

wheel: .venv/ready-dev  ## Build wheel and sdist, and try the wheel in a clean environment
	PYTHON="$(PYTHON)" tools/verify_wheel.sh

clean:  ## Remove everything that was built
	rm -rf .venv build dist results *.egg-info
