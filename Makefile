# relpref. Each command prepares what it needs: a fresh machine wants Python 3.11 or newer and nothing else.
#
#   make demo PYTHON=/path/to/python3     the Python to build the environment with (default: tools/find-python)
#   make test VENV=/tmp/relpref           where the environment lies (default: .venv)
#   make test ARGS="-k graph -x"          more arguments for pytest; also for bench
#   make test WORKERS=0                   all tests in one process (default: one worker for each core, at most four)
#   make bench TORCH="torch==2.13.0"      the PyTorch to compare with, where the default build is not the one you want

VENV ?= .venv
BENCH_VENV ?= .venv-bench
LOWEST_VENV ?= .venv-lowest
SITE ?= docs/_build/site
TORCH ?= torch==2.13.0

# The public data files some tests read, where they lie beside the checkout. Set it to nothing to skip those tests.
ifeq ($(origin RELPREF_DATA),undefined)
ifneq ($(wildcard ../shared/data/.),)
RELPREF_DATA := $(CURDIR)/../shared/data
endif
endif
export RELPREF_DATA
# OpenBLAS' threads wait for each other without sleeping; small factorizations are faster with one.
OPENBLAS_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# What takes the tests most of their time is compiling: workers, and the tests of another Python or of tomorrow, share what is compiled.
# Of Python, too, also where the environment forbids it: tests start some sixty processes.
export PYTHONDONTWRITEBYTECODE :=
JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.jax-cache
JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0
COMPILED = JAX_COMPILATION_CACHE_DIR='$(JAX_COMPILATION_CACHE_DIR)' \
	JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=$(JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS)

# And most of compiling is optimizing, which the problems of the tests, small as they are, do not repay. XLA's older
# emitters of fusions, which jaxlib 0.10 has, compile in 0.6 of the time of its new ones; other versions refuse the flag.
OLDER = 'from jaxlib.version import __version__ as v; print("--xla_cpu_use_fusion_emitters=false" * v.startswith("0.10."))'
quickly = XLA_FLAGS="--xla_backend_optimization_level=0 $$($(1)/bin/python -c $(OLDER))"

# A worker runs whole files, whose problems share what JAX compiles.
WORKERS ?= auto
PARALLEL = --numprocesses=$(WORKERS) --maxprocesses=4 --dist=loadfile

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL: # several commands at once would install into one environment
.PHONY: help demo test test-slow test-lowest lint docs docs-site bench clean FORCE

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.installed ## fit the model to real bundled data and write demo/report.html
	$(VENV)/bin/relpref demo --out demo

test: $(VENV)/.installed-test ## run the tests, except those marked slow
	@echo "Testing with $$($(VENV)/bin/python --version); data files: $${RELPREF_DATA:-none, the tests that read them are skipped}"
	$(COMPILED) $(call quickly,$(VENV)) $(VENV)/bin/python -m pytest $(PARALLEL) $(ARGS)

test-slow: $(VENV)/.installed-test ## run the tests marked slow
	$(COMPILED) $(VENV)/bin/python -m pytest -m slow $(PARALLEL) $(ARGS)

# An import of every room, files, one fit with each engine, the command line.
LOWEST_TESTS = tests/test_imports.py tests/test_lowest.py tests/data/test_files.py tests/posterior/test_storage.py \
	tests/infer/test_relation_storage.py tests/posterior/test_class_posterior.py tests/infer/test_laplace.py \
	tests/cli/test_fit.py tests/ask/test_guard.py tests/test_parallel.py

test-lowest: $(LOWEST_VENV)/.installed-lowest ## run some tests with the lowest versions of all dependencies
	@echo "Testing the lowest versions with $$($(LOWEST_VENV)/bin/python --version)"
	$(COMPILED) $(call quickly,$(LOWEST_VENV)) $(LOWEST_VENV)/bin/python -m pytest $(PARALLEL) $(LOWEST_TESTS) $(ARGS)

lint: $(VENV)/.installed-lint ## check style, formatting, types and the budget of the sources
	$(VENV)/bin/python -m ruff check
	$(VENV)/bin/python -m ruff format --check
	$(VENV)/bin/python -m mypy
	$(VENV)/bin/python tools/budget.py

docs: $(VENV)/.installed-docs ## execute the tutorials and build the documentation site in docs/_build/html
	$(COMPILED) $(VENV)/bin/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "The site is in docs/_build/html/index.html"

docs-site: export RELPREF_SITE = 1
docs-site: docs ## add the documentation of this version to the site of all versions in SITE
	$(VENV)/bin/python tools/docs_site.py docs/_build/html $(SITE)
	@echo "All versions are in $(SITE)/index.html"

bench: $(BENCH_VENV)/.installed-bench ## time relpref and its peers side by side
	$(BENCH_VENV)/bin/python -m benchmarks $(ARGS)

clean: ## remove the environments, demo/, builds and caches
	rm -rf .venv .venv-* demo build dist docs/_build docs/api docs/tutorials .jax-cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find relpref tests benchmarks tutorials -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# An environment is made again when its interpreter is gone, and installed into again when the checkout has moved
# or pyproject.toml has changed. The stamp is written last: what was interrupted is done again.
ready = $(shell $(1)/bin/python -c '' 2>/dev/null && [ "$$(cat $(1)/.made 2>/dev/null)" = '$(CURDIR)' ] && echo yes)
$(VENV)/.made: $(if $(call ready,$(VENV)),,FORCE)
$(BENCH_VENV)/.made: $(if $(call ready,$(BENCH_VENV)),,FORCE)
$(LOWEST_VENV)/.made: $(if $(call ready,$(LOWEST_VENV)),,FORCE)

%/.made:
	@if { $*/bin/python -m pip --version || $*/bin/python -m ensurepip; } >/dev/null 2>&1; then \
		echo "Using the environment in $*"; \
	else \
		python=$$(PYTHON='$(PYTHON)' tools/find-python) || exit 1; \
		echo "Making the environment $* with $$("$$python" --version) ($$python)"; \
		if [ -f $*/pyvenv.cfg ]; then rm -rf $*; fi; \
		"$$python" -m venv $*; \
	fi
	@printf '%s\n' '$(CURDIR)' > $@

$(VENV)/.installed: pyproject.toml $(VENV)/.made
	@echo "Installing relpref into $(VENV) (the first time some minutes and about 1 GB)"
	@$(VENV)/bin/python -m pip install --quiet -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml $(VENV)/.made
	@echo "Installing relpref and the test tools into $(VENV) (the first time some minutes and about 1 GB)"
	@$(VENV)/bin/python -m pip install --quiet -e '.[test]'
	@touch $(VENV)/.installed $@

$(VENV)/.installed-lint: pyproject.toml $(VENV)/.made
	@echo "Installing relpref and the checkers into $(VENV) (the first time some minutes and about 1 GB)"
	@$(VENV)/bin/python -m pip install --quiet -e '.[test,lint]'
	@touch $(VENV)/.installed $(VENV)/.installed-test $@

$(VENV)/.installed-docs: pyproject.toml $(VENV)/.made
	@echo "Installing relpref and what builds its documentation into $(VENV) (the first time some minutes and about 1 GB)"
	@$(VENV)/bin/python -m pip install --quiet -e '.[docs]'
	@touch $(VENV)/.installed $@

# Wheels of the lowest versions are there for the oldest Python alone, so PYTHON should be 3.11.
$(LOWEST_VENV)/.installed-lowest: pyproject.toml tools/lowest.py $(LOWEST_VENV)/.made
	@echo "Installing the lowest versions into $(LOWEST_VENV) (the first time some minutes and about 1 GB)"
	@$(LOWEST_VENV)/bin/python tools/lowest.py > $(LOWEST_VENV)/lowest.txt
	@$(LOWEST_VENV)/bin/python -m pip install --quiet -c $(LOWEST_VENV)/lowest.txt -e '.[test]'
	@touch $@

$(BENCH_VENV)/.installed-bench: pyproject.toml $(BENCH_VENV)/.made
	@echo "Installing PyTorch, relpref and its peers into $(BENCH_VENV) (the first time some minutes and about 2 GB)"
	@$(BENCH_VENV)/bin/python -m pip install --quiet $(TORCH)
	@$(BENCH_VENV)/bin/python -m pip install --quiet -e '.[bench]'
	@touch $@
