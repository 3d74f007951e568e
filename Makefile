# `make demo` and `make test` do everything on a fresh machine; both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Several processes of tests share the cores: threads of theirs that wait for one another in loops only take time.
export OMP_NUM_THREADS ?= 1

# Tests start many processes: without compiled files on disk each of them compiles all of src/ anew, for a second.
unexport PYTHONDONTWRITEBYTECODE

# What of the tests runs side by side, the longest first, so that no core is left alone at the end. One process each,
# which imports its frameworks once; those of tests/pressure wait for a while, since TensorFlow gives up on an allocation
# after ten seconds.
PARTS := test-commands test-tensorflow test-allocator test-pressure test-jax test-torch lint test-pages test-unit \
	test-docstrings
PYTEST = $(BIN)/python -m pytest -m "$(SELECT)" -o cache_dir=.pytest_cache/$@
SELECT ?= not slow

NEXT := .venv-next
# PyPI's PyTorch brings CUDA, which is gigabytes: the one of requirements-dev.txt stays.
TORCH_NEXT ?= $(shell grep '^torch==' requirements-dev.txt)
TESTS_NEXT := tests/commands/test_private_names.py tests/commands/test_formats.py

.PHONY: demo test test-all test-fast test-fast-backend test-next $(PARTS) coverage docs bench pictures setup

demo: $(READY)
	$(BIN)/python examples/demo.py

# All that CI does. A part prints what it has to say when it ends; any that fails fails the whole, after the others.
test: $(READY)
	$(MAKE) --jobs 3 --keep-going --output-sync=target --no-print-directory $(PARTS)

# With the larger sizes too, which are marked slow.
test-all:
	$(MAKE) test SELECT="slow or not slow"

# For the inner loop: what needs no framework, and a little of one backend, PyTorch unless KERAS_BACKEND names another:
# it compiles nothing.
test-fast: $(READY)
	$(MAKE) --jobs 2 --keep-going --output-sync=target --no-print-directory test-fast-backend test-unit

test-fast-backend: $(READY)
	KERAS_BACKEND=$${KERAS_BACKEND:-torch} $(PYTEST) \
		$(addprefix tests/backends/test_,contract.py fit.py step.py transaction.py)

test-unit: $(READY)
	$(PYTEST) tests/unit

test-docstrings: $(READY)
	$(PYTEST) --doctest-modules src

test-tensorflow test-jax test-torch: test-%: $(READY)
	KERAS_BACKEND=$* $(PYTEST) tests/backends

test-allocator: $(READY)
	$(PYTEST) tests/pressure/allocator

test-pressure: $(READY)
	$(PYTEST) --numprocesses 3 --dist loadfile --ignore tests/pressure/allocator tests/pressure

test-commands: $(READY)
	$(PYTEST) tests/commands

test-pages: $(READY)
	$(PYTEST) tests/pages

# Which lines of src/ the tests run, those of child processes not counted.
coverage: $(READY)
	rm -f .coverage .coverage.*
	for part in unit pages; do COVERAGE_FILE=.coverage.$$part $(BIN)/python -m pytest --cov --cov-report= tests/$$part || exit 1; done
	for backend in jax tensorflow torch; do KERAS_BACKEND=$$backend COVERAGE_FILE=.coverage.$$backend \
	$(BIN)/python -m pytest -m "not slow" --cov --cov-report= tests/backends || exit 1; done
	$(BIN)/python -m coverage combine
	$(BIN)/python -m coverage report --skip-covered --sort=cover

# With the newest keras, jax and tensorflow-cpu, release candidates too, in an environment of its own: whether the private
# names that fitroom uses are still there, and whether plans and runs of earlier versions are read. The newest JAX may
# want a newer Python: make test-next PYTHON=python3.13.
test-next:
	test -x $(NEXT)/bin/python || $(PYTHON) -m venv $(NEXT)
	$(NEXT)/bin/pip install --quiet --disable-pip-version-check --upgrade \
		"keras>=3.dev0" "jax>=0.dev0" "jax-cuda13-pjrt>=0.dev0" "tensorflow-cpu>=2.dev0" $(TORCH_NEXT) \
		pytest tensorboard opencv-python-headless keras-tuner
	$(NEXT)/bin/pip install --quiet --disable-pip-version-check --editable .
	# A release candidate of TensorFlow brings keras-nightly, which writes into the same folder as keras.
	$(NEXT)/bin/pip uninstall --quiet --yes keras-nightly
	$(NEXT)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps "keras>=3.dev0"
	$(NEXT)/bin/pip list --format=freeze | grep -E "^(keras|jax|jaxlib|tensorflow[a-z_-]*|torch|numpy)=="
	$(NEXT)/bin/python -m pytest tests/commands/test_private_names.py tests/commands/test_formats.py
	KERAS_BACKEND=torch $(NEXT)/bin/python -m pytest -m "not slow" tests/backends/test_fit.py

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

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
