# The project's chores. `make` alone lists them.

PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed
FIXTURE := tests/fixtures/memory_nodes.jsonl

.DEFAULT_GOAL := help
.PHONY: help demo up test test-long check format lock clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(STAMP) ## set up, fill a memory from a file and ask it two questions
	@$(VENV)/bin/mem demo $(FIXTURE)

up: $(STAMP) ## set up and start the whole service on this machine, until Ctrl-C
	@$(VENV)/bin/mem up

test: $(STAMP) ## set up and run the tests (at most 12 minutes)
	$(VENV)/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder

test-long: $(STAMP) ## soaks and bursts, beside the tests of `make test`
	$(VENV)/bin/pytest -m long

check: $(STAMP) ## formatting, lint, types, architecture and the compose file
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml

format: $(STAMP) ## format the code and fix what lint can fix
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

lock: $(STAMP) ## resolve the dependencies anew into requirements/*.txt
	$(VENV)/bin/uv pip compile pyproject.toml --upgrade $(LOCK_OPTIONS) -o requirements/runtime.txt
	$(VENV)/bin/uv pip compile pyproject.toml --upgrade --group dev $(LOCK_OPTIONS) -o requirements/dev.txt
	$(VENV)/bin/uv pip compile requirements/build.in -c requirements/dev.txt $(LOCK_OPTIONS) -o requirements/build.txt

LOCK_OPTIONS := --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock" --quiet

clean: ## remove the virtual environment and the tools' caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name one: make PYTHON=python3.12"; exit 1; }
	@echo "Setting up $(VENV) (about a minute, once)"
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
