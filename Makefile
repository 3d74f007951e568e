# `make demo` and `make test` do everything on a fresh machine; both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Several processes of tests share the cores: threads of theirs that wait for one another in loops only take time.
test test-all test-next: export OMP_NUM_THREADS = 1

NEXT := .venv-next
# PyPI's PyTorch brings CUDA, which is gigabytes: the one of requirements-dev.txt stays.
TORCH_NEXT ?= $(shell grep '^torch==' requirements-dev.txt)
TESTS_NEXT := tests/test_private_names.py tests/test_formats.py

.PHONY: demo test test-all test-next lint docs bench pictures setup

demo: $(READY)
	$(BIN)/python examples/demo.py

test: lint
	$(BIN)/python -m pytest --doctest-modules src
	$(BIN)/python -m pytest --numprocesses 4 --dist worksteal -m "not slow" tests

# Everything; about half as long again.
test-all: lint
	$(BIN)/python -m pytest --doctest-modules src
	$(BIN)/python -m pytest --numprocesses 4 --dist worksteal tests

# With the newest keras, jax and tensorflow-cpu, release candidates too, in an environment of its own: whether the private
# names that fitroom uses are still there, and whether plans and runs of earlier versions are read. The newest JAX may
# want a newer Python: make test-next PYTHON=python3.13.
test-next:
	test -x $(NEXT)/bin/python || $(PYTHON) -m venv $(NEXT)
	$(NEXT)/bin/pip install --quiet --disable-pip-version-check --upgrade \
		"keras>=3.dev0" "jax>=0.dev0" "jax-cuda13-pjrt>=0.dev0" "tensorflow-cpu>=2.dev0" $(TORCH_NEXT) \
		pytest tensorboard opencv-python-headless
	$(NEXT)/bin/pip install --quiet --disable-pip-version-check --editable .
	# A release candidate of TensorFlow brings keras-nightly, which writes into the same folder as keras.
	$(NEXT)/bin/pip uninstall --quiet --yes keras-nightly
	$(NEXT)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps "keras>=3.dev0"
	$(NEXT)/bin/pip list --format=freeze | grep -E "^(keras|jax|jaxlib|tensorflow[a-z_-]*|torch|numpy)=="
	$(NEXT)/bin/python -m pytest $(TESTS_NEXT)

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
