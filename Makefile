# `make run` and `make test` do all the set-up they need on a fresh machine with Python 3.11 or newer.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   ?= 1
DATA   ?= tallymark-data
SOAK_MINUTES ?= 60

.DEFAULT_GOAL := help
.PHONY: help setup setup-test run test test-quick test-long soak upgrade-fixtures pictures bench bench-cluster check format clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(VENV)/.run ## make .venv and install what running needs

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

$(VENV)/.run: pyproject.toml | $(VENV)/bin/python
	@echo "installing Tallymark and Spark into $(VENV) (a minute or two the first time) …"
	$(BIN)/pip install --quiet --editable ".[all]"
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	@echo "installing what the tests need into $(VENV) …"
	$(BIN)/pip install --quiet --editable ".[dev]"
	@touch $@ $(VENV)/.run

$(VENV)/.bench: pyproject.toml | setup-test
	$(BIN)/pip install --quiet --editable ".[dev,bench]"
	@touch $@

setup-test: $(VENV)/.test ## also what the tests need: linters, a browser, Kafka, Cassandra
	@command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium)
	@$(BIN)/python -m lab

run: setup ## run the whole path here, with demo traffic (DEMO=0 without)
	$(BIN)/tallymark up --data $(DATA) $(if $(filter 1,$(DEMO)),--demo)

# Three processes at a time, because half of the time tests wait; tests/lanes.py says which tests stay together and what comes first.
LANES  := -n 3 --dist loadgroup --no-loadscope-reorder

test: setup-test ## every promise once, on real servers: about 25 minutes
	$(BIN)/pytest $(LANES)

test-quick: setup-test ## the inner loop, under 90 seconds: no servers, no processes
	$(BIN)/pytest $(LANES) tests/unit

test-long: setup-test ## the exhaustive variants: every crash point, many kills, many histories
	$(BIN)/pytest $(LANES) -m long

soak: setup-test ## the dashboard open for an hour (SOAK_MINUTES) under load: what it holds, long frames
	SOAK_MINUTES=$(SOAK_MINUTES) $(BIN)/pytest -s -m long tests/browser/test_soak.py

upgrade-fixtures: setup-test ## before a release: the data folders that later versions must open
	PYTHONPATH=tests:. $(BIN)/python -m upgrades.make

pictures: setup-test ## the pictures in docs/pictures, anew
	TALLYMARK_PICTURES=1 $(BIN)/pytest tests/browser/test_screenshots.py

bench: setup-test $(VENV)/.bench ## the figures: one table and a JSON file in bench/results
	$(BIN)/python -m bench

bench-cluster: setup-test ## the same on three brokers, two Spark workers and Cassandra
	$(BIN)/python -m bench --cluster

check: setup-test ## lint, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: setup-test ## let ruff rewrite the layout
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove .venv and caches (never the data)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
