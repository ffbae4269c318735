# Everything runs in .venv, which the first target that needs it builds.

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
FRAMEWORKS := $(VENV)/.frameworks

# python3.11 if it runs, else python3. Another one: make PYTHON=/path/to/python test
PYTHON ?= $(shell python3.11 -c 'import sys; print(sys.executable)' 2>/dev/null || command -v python3)
# -qq: errors only.
PIP_INSTALL := $(BIN)/python -m pip install -qq --progress-bar off -c constraints.txt

# Two test processes with one torch thread each, a file of tests in one of them: what a file prepares is
# prepared once. make test PYTEST_ARGS="-x tests/optim" for less.
PYTEST_ARGS ?= -n 2 --dist loadfile
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_ARGS)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo pictures results docs test test-all coverage check bench bench-quality format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

DEMO := studies/demo studies/demo-siren

demo: $(INSTALLED)  ## does it tune? seven fixed rates beside a run that is given none; ends in a page
	rm -rf $(DEMO) studies/demo-page
	$(BIN)/annealtune study demo --out studies/demo
	$(BIN)/annealtune study demo-siren --out studies/demo-siren
	$(BIN)/annealtune report $(DEMO) --out studies/demo-page

# The pictures of README, from the page of the demo and that of one run; needs Chromium.
PICTURE := $(BIN)/python -m tools.pictures
pictures: demo  ## take the pictures of README again
	$(PICTURE) studies/demo-page/index.html docs/pictures/demo.png --top 140 --height 650
	$(BIN)/annealtune report studies/demo/runs/self-tuned-seed0
	$(PICTURE) studies/demo/runs/self-tuned-seed0/report/index.html docs/pictures/run.png --height 1150

# No training: python -m tools.results keep STUDY keeps the records of a study that has been run.
results: $(INSTALLED)  ## the pages and tables of docs/results, from the records that are kept there
	$(BIN)/python -m tools.results

# Nothing on the pages is loaded from outside. NO_MKDOCS_2_WARNING silences an advertisement.
docs: $(INSTALLED)  ## build the docs site into site/; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "The site is in site/; look at it with: $(BIN)/python -m http.server --directory site"

test: check $(FRAMEWORKS)  ## format, lint, types and the fast tests
	$(PYTEST)

test-all: check $(FRAMEWORKS)  ## the same with the slow tests
	$(PYTEST) -m "slow or not slow"

# The rooms that decide what a step does. Statements and branches are counted together. The tests of
# interrupts are left out: they use sys.settrace, and what follows them would not be measured.
coverage: $(INSTALLED)  ## which lines and branches the tests of annealing, search and optim reach
	$(PYTEST) --cov --cov-report= --ignore-glob='*/test_interrupts.py' tests/annealing tests/test_search.py tests/test_reference.py tests/optim
	$(BIN)/coverage report --fail-under=95 --include="src/annealtune/annealing/*,src/annealtune/search.py,src/annealtune/optim/*"

check: $(INSTALLED)  ## format, lint and types only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(INSTALLED)  ## what one step costs compared with the bare optimizer
	$(BIN)/python benchmarks/step_cost.py
	$(BIN)/python -m benchmarks.race_cost

# Runs of hours; started again it goes on. make bench-quality DATA=folder TEXT=tinyshakespeare.txt
QUALITY := OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.quality
bench-quality: $(INSTALLED)  ## what the methods and their peers reach; hours, can be interrupted
	$(PIP_INSTALL) -e '.[bench]'
	$(QUALITY) --jobs 2 $(if $(DATA),--data-dir $(DATA)) $(if $(TEXT),--text $(TEXT))

format: $(INSTALLED)  ## rewrite the files as `make test` wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove what make and the tools have made, .venv included; keep runs/ and data/
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch goes first and alone: whichever build of that version pip is set up to find is then in place,
# and the second command, held to the same pins, has no reason to fetch another.
$(INSTALLED): pyproject.toml constraints.txt
	@echo "Installing into $(VENV): torch first, then the rest (some minutes the first time) ..."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(PIP_INSTALL) torch
	$(PIP_INSTALL) -e '.[train,tensorboard,docs,dev]'
	@touch $@

# What only the tests of the frameworks need: no demo waits for it. timm asks for torchvision, which
# breaks beside a CPU torch; it lies aside, without what it asks for, and only its own test looks there.
$(FRAMEWORKS): $(INSTALLED)
	@echo "Installing the frameworks that the tests run in (a minute the first time) ..."
	$(PIP_INSTALL) -e '.[frameworks,ray]'
	$(PIP_INSTALL) --no-deps --upgrade --target $(VENV)/without-dependencies timm
	@touch $@
