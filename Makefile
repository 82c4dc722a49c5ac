# Every target creates what it needs in .venv and asks nothing. A second call reinstalls nothing.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
ARGS   ?=
ONLY   ?=

.DEFAULT_GOAL := help
.PHONY: help run test lint bench format wheel clean

help: ## show the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || { echo "creating $(VENV)"; \
	  $(PYTHON) -c 'import sys; v=sys.version_info; sys.exit(0 if v>=(3,11) else f"penstock needs Python 3.11 or newer, {sys.executable} is {v.major}.{v.minor}; set PYTHON=")' \
	  && $(PYTHON) -m venv $(VENV); }
	@echo "installing penstock and what it needs into $(VENV) (first time: a few minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,examples]'
	@touch $@

run: $(STAMP) ## the main job; ARGS="--policy threshold" and the like are passed on
	@$(BIN)/penstock demo $(ARGS)

test: lint ## ruff, mypy and every test
	@$(BIN)/python -m pytest -n 2 --no-loadscope-reorder $(ARGS)

lint: $(STAMP) ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(STAMP) ## rewrite the sources in the project's format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(STAMP) ## measure; ONLY=core,spark,filters,budgets,policies for a part
	@$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY))

wheel: $(STAMP) ## build the wheel into dist/
	@$(BIN)/python -m build --wheel

clean: ## remove what was built, keep .venv
	@rm -rf build dist runs .pytest_cache .mypy_cache .ruff_cache
