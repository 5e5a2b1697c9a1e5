# `make` lists the targets. Everything that is needed is installed from locks into .venv and .engines.
PYTHON ?= $(firstword $(foreach v,python3.11 python3.12 python3,$(if $(shell $(v) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && echo yes),$(v),)))
BIN := .venv/bin
CONFIGS := $(wildcard config/*.yaml)
CORES ?= 1

.DEFAULT_GOAL := help
.PHONY: help venv report test lint dag format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: .venv/.workflow ## make .venv from envs/workflow.lock
report: .venv/.workflow ## run the active experiment (config/config.yaml) and build report/findings.html
	$(BIN)/snakemake --cores $(CORES) report/findings.html

test: .venv/.development ## run the tests on two cores (PYTEST="-m 'not engine'" chooses)
	$(BIN)/python -m pytest -n 2 --dist loadfile $(PYTEST)

lint: .venv/.development ## ruff, snakefmt, snakemake --lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint

dag: .venv/.workflow ## dry run of every configuration in config/: no engine, no GPU, no network
	@set -e; for config in $(CONFIGS); do echo "== $$config"; \
	  $(BIN)/snakemake --cores 1 --dry-run --quiet rules --configfile $$config; done

format: .venv/.development ## format Python and Snakemake files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow

clean: ## remove results, reports and models; keep .venv and .engines
	rm -rf results models report/findings.html report/findings.md

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 is needed; name it with: make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv .venv

# A `venv` that was killed half way has no pip; it is made anew. scripts/ is made importable, so that `python -m reckoning...` works in the environment.
.venv/.workflow: envs/workflow.lock | .venv/bin/python
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --disable-pip-version-check -q --require-hashes -r envs/workflow.lock
	$(BIN)/python -c "import pathlib, site; pathlib.Path(site.getsitepackages()[0], 'reckoning.pth').write_text(str(pathlib.Path('scripts').resolve()) + chr(10))"
	touch $@

.venv/.development: envs/development.lock .venv/.workflow
	$(BIN)/python -m pip install --disable-pip-version-check -q --require-hashes -r envs/development.lock
	touch $@
