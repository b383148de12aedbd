# Two commands do everything: `make score` compares the reference agents, `make test` runs the tests.

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
ROUNDS ?= 5

# There are as many processes as cores already; threads of the linear algebra would only wait for one another.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: help score test test-slow test-rl test-lowest test-pythons smoke pages check-pages docs lint format bench train-ppo verify-all wheel leaderboard fresh-rows clean

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

# Agents that need no more than a few seconds an episode; `fleetgym list agents` names the others.
QUICK_AGENTS := hold random autoscale gh gh-rolling agh agh-rolling homogeneous 'descent(every=6)' margin

score: .venv/ready  ## Compare ten reference agents on a day of each family of fleet-v2/dev (under 4 CPU minutes)
	$(BIN)/fleetgym warmup
	$(BIN)/fleetgym compare $(QUICK_AGENTS) --suite fleet-v2/first --workers $(WORKERS)

test: .venv/ready-dev  ## Run the tests and the doctests
	$(BIN)/fleetgym warmup
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not rl and not smoke" --doctest-modules tests fleetgym baselines papers tools

test-slow: .venv/ready-dev  ## Run the tests over four CPU seconds: whole plans and episodes, thousands of LPs
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "slow and not full" --durations=15 tests

test-rl: .venv/ready-dev  ## Run the checks that need stable-baselines3 (installs it, with PyTorch)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[rl]'
	$(BIN)/python -m pytest -m rl tests

smoke: .venv/ready-dev  ## Run every benchmark and tool on a small input (3 minutes; prints CPU seconds of each)
	$(BIN)/python -m pytest -m smoke tests/tools/test_programs.py

lint: .venv/ready-dev  ## Check style, docstrings, types and the length of sentences
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tools.check_prose

format: .venv/ready-dev  ## Format the code, and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/ready-dev  ## Measure the kernels against their peers, as ratios within one run; then verify-all
	$(BIN)/python tests/benchmarks/bench_routing.py
	$(BIN)/python tests/benchmarks/bench_rollouts.py
	$(BIN)/python tests/benchmarks/bench_milp.py --sizes 6-6-10 10-10-10
	$(BIN)/python tests/benchmarks/bench_environment.py
	$(MAKE) verify-all

# What `make pages` writes. docs/results.md needs runs that are not in the repository.
PAGES := docs/bounds.md docs/families.md docs/fleet-v2.md docs/referee.md instances/fleet-v1/croissant.json instances/fleet-v2/croissant.json docs/reproduce-fleet-sim.md docs/reproduce-jiang.md docs/reproduce-coral.md docs/reproduce-fastllm.md leaderboard/tuning/README.md instances/schema

pages: .venv/ready-dev  ## Write every page and schema anew that tools make from stored data (two CPU minutes)
	$(BIN)/python -m tools.bound_agents --page
	$(BIN)/python -m tools.family_pages
	$(BIN)/python -m tools.check_referee
	$(BIN)/python -m tools.demand_statistics --page docs/fleet-v2.md
	$(BIN)/python -m tools.croissant
	$(BIN)/python -m tools.tune_agents
	$(BIN)/python -m tools.make_instances --schemas
	$(BIN)/python -m fleetgym.papers pages

check-pages: pages  ## Write them anew, and fail if one differs from what is committed
	@git diff --exit-code -- $(PAGES) && test -z "$$(git status --porcelain -- $(PAGES))" || { \
		git status --short -- $(PAGES) >&2; \
		echo "These pages were stale; 'make pages' has written them. Look at them and commit them." >&2; exit 1; }

docs: .venv/ready  ## Build the site into build/site, and run its notebooks (two CPU minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m sphinx -W --keep-going -q -b html docs build/site
	@echo "open build/site/index.html"

train-ppo: .venv/ready-dev  ## Train the agent ppo (five CPU minutes) into results/ppo; goes on where it stopped
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[rl]'
	OMP_NUM_THREADS=1 $(BIN)/python -m fleetgym.baselines.ppo.train --folder results/ppo --rounds $(ROUNDS)

verify-all: .venv/ready-dev  ## The rest of the slow proofs: every stored task in the reference evaluator, many damaged files
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m full tests

leaderboard: .venv/ready  ## Verify every submission anew and build leaderboard/site/index.html (a CPU minute a row, four on fleet-v1)
	$(BIN)/fleetgym verify leaderboard/submissions/* --workers $(WORKERS) --out leaderboard/verified
	$(BIN)/fleetgym leaderboard leaderboard

# Each reference agent has one submission on fleet-v1/sample. A row that exists is not played again.
SEASON ?= 2026-12
PRIVATE ?= private-$(SEASON)

fresh-rows: .venv/ready-dev  ## Play every reference agent on a season's fresh tasks: make fresh-rows SEED=season.seed
	@test -f "$(SEED)" || { echo "SEED=FILE names the season's private seed" >&2; exit 1; }
	test -d $(PRIVATE) || $(BIN)/fleetgym season draw $(SEASON) --seed-file $(SEED) --out $(PRIVATE)
	test -f $(PRIVATE)/fresh-$(SEASON)/best_known.json || FLEETGYM_INSTANCES=$(PRIVATE) \
		$(BIN)/fleetgym best-known search fresh-$(SEASON)/dev \
		--name bks-$(SEASON)-fresh-$(SEASON) --out $(PRIVATE)
	$(BIN)/fleetgym rerun leaderboard/submissions/*-sample-* --season $(SEASON) --instances $(PRIVATE) --workers $(WORKERS)

test-lowest:  ## Install the oldest versions that pyproject.toml states, and run a smoke set with them (two minutes)
	PYTHON="$(PYTHON)" tools/verify_versions.sh lowest 3.11

test-pythons: test-python-3.12 test-python-3.13  ## The same with the newest versions, on every Python that is here

test-python-%:
	PYTHON="$(PYTHON)" tools/verify_versions.sh newest $*

wheel: .venv/ready-dev  ## Build wheels and sdist into dist, and try the wheels in a clean environment
	PYTHON="$(PYTHON)" tools/verify_wheel.sh

clean:  ## Remove everything that was built
	rm -rf .venv build dist results *.egg-info
