# The whole developer surface. `make help` lists it.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
CODE   := src lab bench tests conftest.py
# Half of what tests do is waiting for disks and processes: more of them than cores, each with a Spark of its own.
WORKERS ?= 3
CACHE  := $(VENV)/tests

.DEFAULT_GOAL := help
.PHONY: help setup run test fmt check golden soak sweep bench lab results constraints clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(STAMP) ## make .venv with the pinned versions (the other targets do it themselves)

$(STAMP): constraints.txt pyproject.toml lab/pyproject.toml bench/pyproject.toml
	@PYTHON="$(PYTHON)" sh scripts/setup.sh $(VENV)
	@touch $(STAMP)

run: $(STAMP) ## the demo: thirty overlapping queries over real data on Spark
	@$(BIN)/millstream demo

test: $(STAMP) ## everything CI runs: style, types, unit, golden, oracle, fault and process tests
	@$(MAKE) --no-print-directory check
	@rm -rf $(CACHE)
	@$(BIN)/python -m pytest -m "not soak" -n $(WORKERS) --dist loadfile \
	  || sh scripts/again_alone.sh $(BIN)/python $(CACHE)

check: $(STAMP) ## ruff and mypy
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/mypy

fmt: $(STAMP) ## format and sort imports
	@$(BIN)/ruff check --fix $(CODE)
	@$(BIN)/ruff format $(CODE)

golden: $(STAMP) ## rewrite the expected texts of golden tests; read the diff
	@MILLSTREAM_GOLDEN=write $(BIN)/python -m pytest tests -k golden

soak: $(STAMP) ## damages, poisons, half-open connections; 300 queries for an hour: all flat
	@$(BIN)/python -m pytest -m soak -s --timeout=7200 tests/engine/test_damage_fuzz.py \
	  tests/engine/test_poisons.py tests/edge/test_half_open.py tests/test_soak.py

sweep: $(STAMP) ## the other long tests: more seeds, more moves, real networks, other Sparks; hours
	@$(BIN)/python -m pytest -m soak --timeout=7200 --ignore=tests/test_soak.py \
	  --ignore=tests/engine/test_damage_fuzz.py --ignore=tests/engine/test_poisons.py \
	  --ignore=tests/edge/test_half_open.py

bench: $(STAMP) ## millstream against plain Structured Streaming
	@$(BIN)/millstream bench single

lab: $(STAMP) ## every experiment at full size (hours; LAB=--resume goes on), then the pages of results
	@$(BIN)/millstream lab all $(LAB)
	@$(MAKE) --no-print-directory results

results: $(STAMP) ## lab/RESULTS.md and the tables of docs/design from the stored runs; runs nothing
	@$(BIN)/millstream lab report --docs docs/design --plots out/lab

constraints: ## pin all versions anew, with hashes (needs uv)
	uv pip compile pyproject.toml --extra dev --python-version 3.11 --universal --generate-hashes \
	  --no-emit-index-url --no-header -o constraints.txt

clean: ## remove what set-up made
	rm -rf $(VENV) .mypy_cache .ruff_cache
