# Every target does its own set-up in .venv, so that `make run` and `make test` work on a fresh clone.

DURATION ?= 60
SCENARIO ?= showcase
DEMO     ?= oval
# A test that hangs fails after LIMIT seconds, so that the others are reported.
LIMIT    ?= 600
# Tests wait for a third of their time, for processes and networks: two more than there are cores keep these busy.
WORKERS  ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 2 )))
BUSY     ?= 4
SINCE    ?= HEAD
ARGS     ?=

SUPPORTED := python3 python3.11 python3.12 python3.13 python3.10
PYTHON    ?= $(shell for p in $(SUPPORTED); do $$p -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)

VENV  := .venv
BIN   := $(VENV)/bin
READY := $(VENV)/.ready
FAST  := -m "not slow and not bench and not aarch64 and not interop and not learning and not gpu"
SPLIT  = -n $(WORKERS) --dist worksteal --timeout $(LIMIT) # neighbours stay together, and share what their file prepares
QUICK := $(shell cat tests/quick.txt)
CODE  := microsim tests benchmarks examples docs launch setup.py
METADATA := setup.py setup.cfg pyproject.toml microsim/version.py

# The tests start hundreds of processes: without bytecode, each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run demo test times test-loaded quick test-changed test-all check format format-check lint types layers static coverage bench soak gpu docs aarch64 environments interop learning packaging dist pictures lock hooks clean distclean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(READY) ## Watch a live simulation in the terminal (DURATION=60 SCENARIO=showcase ARGS=)
	@ROS_AUTOMATIC_DISCOVERY_RANGE=$${ROS_AUTOMATIC_DISCOVERY_RANGE:-LOCALHOST} $(BIN)/microsim run $(SCENARIO) --autopilot --duration $(DURATION) $(ARGS)

demo: $(READY)-view ## See a demo in the browser, and drive (DEMO=oval ARGS=)
	@$(BIN)/microsim demo $(DEMO) --open $(ARGS)

test: $(READY)-dev ## Run the fast tests (ARGS= goes to pytest)
	@$(BIN)/python -m pytest $(SPLIT) $(FAST) $(ARGS)

times: $(READY)-dev ## Run the fast tests and print where their time goes (ARGS= goes to pytest)
	@$(BIN)/python -m pytest -q -p tests.times $(SPLIT) $(FAST) $(ARGS)
	@$(BIN)/python -m tests.times

test-loaded: $(READY)-dev ## Run the fast tests beside busy processes: none may depend on time (BUSY=4 ARGS=)
	@$(BIN)/python -m tests.loaded $(BUSY) $(SPLIT) $(FAST) $(ARGS)

quick: $(READY)-dev ## Run a representative part of the tests, in under a minute
	@$(BIN)/python -m pytest -q $(SPLIT) $(FAST) $(QUICK) $(ARGS)

test-changed: $(READY)-dev ## Run the fast tests that changes since SINCE=HEAD can break (ARGS=)
	@chosen="$$($(BIN)/python -m tests.changed $(SINCE))"; [ -z "$$chosen" ] || $(BIN)/python -m pytest $(SPLIT) $(FAST) $$chosen $(ARGS)

test-all: $(READY)-dev ## Run the slow tests too
	@$(BIN)/python -m pytest $(SPLIT) -m "not bench and not aarch64 and not learning and not gpu" $(ARGS)

check: static test ## Everything before a commit: format, lint, types, layers, tests

static: format-check lint types layers

format: $(READY)-dev ## Format the code and sort its imports
	@$(BIN)/ruff check --quiet --select I --fix $(wildcard $(CODE))
	@$(BIN)/ruff format $(wildcard $(CODE))

format-check: $(READY)-dev
	@echo "== format"
	@$(BIN)/ruff format --check $(wildcard $(CODE))

lint: $(READY)-dev ## Lint with ruff
	@echo "== lint"
	@$(BIN)/ruff check $(wildcard $(CODE))

types: $(READY)-dev ## Check types with mypy: strict for microsim, what tests call for tests
	@echo "== types"
	@$(BIN)/mypy

layers: $(READY)-dev ## Check that imports point down the layers
	@echo "== layers"
	@$(BIN)/lint-imports --no-logo

# Compiled kernels run outside Python, where coverage sees nothing: measure with the compiler off. The documentation's examples
# show how fast things are, so they are left out.
coverage: $(READY)-dev ## Measure test coverage; microsim/engine must reach 95 %
	@NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest $(SPLIT) $(FAST) tests/unit tests/acceptance --ignore tests/unit/cli/test_docs.py --ignore tests/unit/cli/test_cli.py --ignore tests/parts/view/test_demos.py --cov --cov-report= $(ARGS)
	@$(BIN)/coverage report --include 'microsim/engine/*' --fail-under 95
	@$(BIN)/coverage html --directory .cache/coverage --quiet && echo "line by line: .cache/coverage/index.html"

bench: $(READY)-bench ## Measure speed beside peers: prints a table, writes JSON
	@$(BIN)/python -m benchmarks $(ARGS)

soak: $(READY)-dev ## Repeat what docs/understand/reliability.md promises at length (an hour or two; ARGS='--scale 0.01' for a trial)
	@$(BIN)/python -m tests.soak --write $(ARGS)

gpu: $(READY)-dev ## Test the GPU back end, on a machine that has one and CuPy (`pip install '.[gpu]'`)
	@$(BIN)/python -m pytest -m gpu tests/gpu $(ARGS)

pictures: $(READY)-dev ## Draw every picture of the documentation again (ARGS='lidar editor' for some; needs chromium)
	@$(BIN)/python -m docs.draw $(ARGS)

docs: $(READY)-docs ## Build the documentation in docs/_build/html
	@$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -b html docs docs/_build/html
	@echo "built docs/_build/html/index.html"

aarch64: $(READY)-dev ## On an emulated arm64 processor: compare digests, and drive a node over DDS
	@tests/aarch64/check.sh

environments: $(READY)-dev # of interop and learning
	@tests/interop/setup.sh >/dev/null
	@tests/learning/setup.sh >/dev/null

interop: $(READY)-dev ## Test against real rclpy from PyPI, in .cache/rclpy-venv (two minutes the first time)
	@tests/interop/setup.sh >/dev/null
	@MICROSIM_NEED_RCLPY=1 $(BIN)/python -m pytest $(SPLIT) -m interop tests/interop $(ARGS)

learning: $(READY)-dev ## Test training and the adapters with torch, in .cache/learning-venv (a minute or two the first time)
	@tests/learning/setup.sh >/dev/null
	@.cache/learning-venv/bin/python -m pytest -m learning tests/learning $(ARGS)

packaging: $(READY) ## Install with pip and with colcon into scratch folders and try both
	@tests/packaging/check.sh

dist: $(READY) ## Build an sdist, a wheel, and one with compiled kernels into dist/, and try each in an empty environment
	@tests/packaging/dist.sh

lock: $(READY)-dev ## Write the newest exact versions for development into dev.lock
	@{ echo "# Exact versions for development, on every supported Python and system; make lock updates them."; \
	   $(INDEX) $(BIN)/uv pip compile --quiet --universal --python-version 3.10 --no-header --no-annotate --extra dev --extra docs setup.py; } >dev.lock.part
	@mv dev.lock.part dev.lock

hooks: $(READY)-dev ## Check every commit with pre-commit
	@$(BIN)/pre-commit install

clean: ## Remove what was built; .venv and downloads stay
	@rm -rf build install log dist *.egg-info docs/_build .coverage* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .cache/coverage .cache/packaging
	@find microsim tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## Remove .venv and downloads too
	@rm -rf $(VENV) .cache

# ---- set-up -----------------------------------------------------------------------------------------------------------

setup: $(READY)-dev ## Only set up .venv for development

# uv installs four times as fast as pip. Where it cannot be had, or cannot find a package as pip is configured to, pip does it.
PIP := $(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check
INDEX = UV_DEFAULT_INDEX="$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null || echo https://pypi.org/simple)}"
UV  = VIRTUAL_ENV=$(VENV) $(INDEX) $(BIN)/uv pip install --quiet

define install # $(1): extras such as [dev]
	@$(call venv)
	@echo "Installing microsim$(1) into $(VENV) (only when its metadata changed) ..."
	@{ { [ -x $(BIN)/uv ] || $(PIP) uv; } && $(UV) --editable '.$(1)'; } >/dev/null 2>&1 || $(PIP) --editable '.$(1)'
	@touch $(READY) $@
endef

define venv
	if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  if [ -z "$(PYTHON)" ]; then \
	    echo "MicroSim needs Python 3.10 to 3.13, but this machine has: $$(python3 --version 2>/dev/null || echo none)" >&2; \
	    echo "Install one (Debian, Ubuntu: apt install python3 python3-venv) or name it: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; fi; \
	  if ! $(PYTHON) -c 'import ensurepip, venv' >/dev/null 2>&1; then \
	    echo "$(PYTHON) cannot make virtual environments. Debian, Ubuntu: apt install python3-venv" >&2; exit 1; fi; \
	  echo "Making $(VENV) with $$($(PYTHON) --version) ..."; \
	  $(PYTHON) -m venv --clear $(VENV); \
	fi
endef

$(READY): $(METADATA)
	$(call install,)

$(READY)-dev: $(METADATA)
	$(call install,[dev])

$(READY)-bench: $(METADATA)
	$(call install,[dev$(,)bench])

$(READY)-view: $(METADATA)
	$(call install,[view])

$(READY)-docs: $(METADATA)
	$(call install,[docs])

, := ,
