# `make demo` and `make test` do everything on a fresh machine; both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Several processes of tests share the cores: threads of theirs that wait for one another in loops only take time.
test test-all: export OMP_NUM_THREADS = 1

.PHONY: demo test test-all lint docs bench pictures setup

demo: $(READY)
	$(BIN)/python examples/demo.py

test: lint
	$(BIN)/python -m pytest --doctest-modules src
	$(BIN)/python -m pytest --numprocesses 4 --dist worksteal -m "not slow" tests

# Everything; about half as long again.
test-all: lint
	$(BIN)/python -m pytest --doctest-modules src
	$(BIN)/python -m pytest --numprocesses 4 --dist worksteal tests

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Into docs/_build/html; `make test` builds it, too, and takes no warning.
docs: $(READY)
	$(BIN)/python docs/commands.py
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Without a GPU: predicts anew what was measured on one, and writes the tables of docs/ from it.
bench: $(READY)
	$(BIN)/python benchmarks/predict/accuracy.py predict --again
	$(BIN)/python benchmarks/pages/accuracy_plot.py
	$(BIN)/python benchmarks/pages/accuracy_page.py

# The pictures in README and docs, from real estimates.
pictures: $(READY)
	$(BIN)/python docs/pictures.py

setup: $(READY)

$(READY): requirements-dev.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $(READY)
