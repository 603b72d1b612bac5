# Each target does the set-up that it needs. `make` lists them.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
SETUP = $(VENV)/.installed
OF = $(BIN)/python

# One thread per process: clients run side by side, and results are equal to the bit only for equal thread counts.
export OMP_NUM_THREADS = 1
export FLWR_TELEMETRY_ENABLED = 0
export FLWR_DISABLE_UPDATE_CHECK = 1
# Tests start many processes, each of which would compile the package anew.
export PYTHONDONTWRITEBYTECODE =
# Without this, every `flwr run` builds a second Python environment.
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION = 1

.PHONY: help setup run deploy-demo smoke test check docs slow audit lock dist sbom clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 13

setup: $(SETUP) ## make the virtual environment

$(SETUP): pyproject.toml constraints.txt
	@echo "Setting up $(VENV): a few minutes for the first time"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[sim,sweep,tune,tensorboard,mlflow,opacus,adapters,dev,docs]"
	@mkdir -p .types && ln -sfn .. .types/florets
	touch $@

run: $(SETUP) ## CLoVE on rotated digits, 20 clients in 4 groups, through `flwr run`
	$(BIN)/florets engine=flwr

deploy-demo: $(SETUP) ## provision 6 nodes with TLS, keys and data of their own, and run them on this machine
	$(BIN)/python -m florets.deploy.demo

smoke: $(SETUP) ## the main jobs by their real commands, to their files: a minute on two cores
	$(BIN)/python -m tests.smoke

test: $(SETUP) ## the default test suite
	$(BIN)/python -m pytest -q -n 2

check: $(SETUP) ## formatting, lint, types, and that the house has not grown
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(OF) -m tests.ratchet
	$(BIN)/mypy

docs: $(SETUP) ## the documentation as a site, in site/; fails on a dead link
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

slow: $(SETUP) ## the tests that start real Flower processes or train for minutes
	$(BIN)/python -m pytest -q -m slow $(SLOW)

audit: $(SETUP) ## known vulnerabilities of the dependencies (needs the network)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/pip-audit --skip-editable

lock: $(SETUP) ## pin every dependency for all supported Pythons: constraints.txt; UPGRADE=--upgrade takes newer ones
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras $(UPGRADE) --no-annotate \
	    --custom-compile-command "make lock" --output-file constraints.txt pyproject.toml

dist: $(SETUP) ## wheel and sdist in dist/, as an index takes them
	rm -rf dist
	$(BIN)/uv tool run --from build pyproject-build --quiet
	$(BIN)/uv tool run twine check --strict dist/*

sbom: $(SETUP) ## bill of materials (CycloneDX) and licences of OF=<python of an environment>, in dist/
	@mkdir -p dist
	$(BIN)/uv tool run --from cyclonedx-bom cyclonedx-py environment --output-reproducible --output-file dist/sbom.json $(OF)
	$(BIN)/uv tool run pip-licenses --python $(OF) --format markdown --with-urls --output-file dist/licences.md

clean: ## remove the virtual environment, caches and results
	rm -rf $(VENV) .types results site .mypy_cache .ruff_cache .pytest_cache *.egg-info
