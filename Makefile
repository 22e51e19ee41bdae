# make setup check test test-long bench docs
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: setup check test test-long bench docs

setup: $(BIN)/srl

$(BIN)/srl: setup.py constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy srl

test: setup
	$(BIN)/python -m pytest

test-long: setup
	$(BIN)/python -m pytest -m 'long or not long'

bench: setup
	$(BIN)/srl bench limit experiment=cartpole

docs: setup
	$(BIN)/python -m pytest tests/docs
