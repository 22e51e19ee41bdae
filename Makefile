# make setup check test test-hosts test-long bench expect docs site
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# every experiment that says what it reaches and is not for a cluster
EXPECTED := $(basename $(notdir $(shell grep -L 'for a cluster' $$(grep -l '^expect:' experiments/*.yaml))))

.PHONY: setup check test test-hosts test-long bench expect docs site

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
	$(BIN)/python -m pytest -n 2 --dist worksteal

# the long tests over several hosts: ssh, Slurm, Ray, Kubernetes, SkyPilot; FAILED=--last-failed: those that failed
test-hosts: setup
	$(BIN)/python -m pytest -m long $(FAILED) tests/cluster tests/contracts/test_every_launcher.py

test-long: setup
	$(BIN)/python -m pytest -m 'long or not long'

bench: setup
	$(BIN)/srl bench limit experiment=cartpole

# half_cheetah_distill needs a teacher
expect: setup
	test -d runs/half_cheetah_ppo || $(BIN)/python -m srl.launch experiment=half_cheetah_ppo --quiet
	@failed=0; for name in $(EXPECTED); do $(BIN)/srl expect experiment=$$name --seeds 1,2,3 || failed=1; done; exit $$failed

docs: site
	$(BIN)/python -m pytest tests/docs

# the documentation as a site, in build/site; a warning is an error
site: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
