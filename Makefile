# Everything runs in a virtual environment of its own, made once from requirements.txt.
#   make demo PYTHON=python3.12     another interpreter
#   make test VENV=elsewhere        another place for the environment

PYTHON ?= python3
VENV ?= .venv
# The tools of requirements, audit and sbom have an environment of their own.
SUPPLY := build/supply
INSTALLED := $(VENV)/.installed

# The demo and the tests measure pauses, so they never run beside each other, under -j neither.
.NOTPARALLEL:
.PHONY: help demo test quick t mutants browser check docs references requirements audit sbom wheel clean

help:
	@echo "make demo    crawl a web on this machine twice, and judge the crawl by its servers' log"
	@echo "make test    run all tests, with the same cases each time"
	@echo "make quick   run the tests that compute, on SQLite alone, with few examples of each property"
	@echo "make t M=policy/backoff   run the tests of a module, and the conformance trial in simulated time"
	@echo "make mutants break the crawler in 90 ways, and print what finds each"
	@echo "make browser look at the page of walsh report with the Chromium of this machine"
	@echo "make check   lint, format, types, imports"
	@echo "make docs    build the pages as a site in build/site, and look for dead links"
	@echo "make references   write the generated parts of the reference pages anew"
	@echo "make requirements   write requirements.txt and .ci/*.txt anew, from pyproject.toml"
	@echo "make audit   ask for known vulnerabilities of all that requirements.txt names"
	@echo "make sbom    write dist/sbom.json, what $(VENV) has (CycloneDX)"
	@echo "make wheel   build the sdist and the wheel into dist/, and check them"
	@echo "make clean   remove $(VENV) and caches; the state in .scrapy stays"

demo: $(INSTALLED)
	$(VENV)/bin/python -m walsh_scrapy demo

# Most tests wait for a real crawl, and a crawl mostly waits. So twelve processes run at once on any
# machine, and none is idle while another has tests left.
test: $(INSTALLED)
	$(VENV)/bin/python -m pytest -n 12 --dist=worksteal

# Files of tests that compute, but in processes of their own, and what only days show.
SLOW := docs test_parsers.py test_start_up.py crawl/test_isolated.py \
  crawl/test_isolated_blocklist.py acceptance/test_trial.py

quick: $(INSTALLED)
	$(VENV)/bin/python -m pytest -q -n auto --dist=worksteal --hypothesis-profile=quick \
	  -m "not crawl and not long and not postgresql" $(SLOW:%=--ignore=tests/%)

t: $(INSTALLED)
	@test -n "$(M)" || { echo "name a module: make t M=policy/backoff" >&2; exit 1; }
	$(VENV)/bin/python -m pytest -q $(wildcard tests/$(M) tests/$(dir $(M))test_$(notdir $(M))*.py) \
	  tests/acceptance/test_trial.py

mutants: $(INSTALLED)
	$(VENV)/bin/python -m benchmarks.mutants

# What this needs beside Chromium comes into $(VENV), and is in no requirements file.
browser: $(INSTALLED) $(SUPPLY)/.installed
	$(SUPPLY)/bin/uv pip install --quiet --python $(VENV)/bin/python --group browser
	$(VENV)/bin/python -m pytest -rs tests/browser

check: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

docs: $(INSTALLED)
	$(VENV)/bin/python -m sphinx -q -W --keep-going -c docs . build/site
	@echo "the first page is build/site/docs/index.html"

references: $(INSTALLED)
	$(VENV)/bin/python -m docs.generate

$(INSTALLED): requirements.txt
	@"$(PYTHON)" -c '' 2>/dev/null || { \
	  echo "$(PYTHON) does not run on this machine: install Python 3.11 or later, or name another" \
	    "one with PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$$("$(PYTHON)" --version 2>&1) is too old: walsh-scrapy needs 3.11 or later;" \
	    "name another one with PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) comes without venv and pip: install them (on Debian: python3-venv)" >&2; \
	  exit 1; }
	@echo "making $(VENV) and installing requirements.txt into it, once ..."
	@"$(PYTHON)" -m venv "$(VENV)"
	@$(VENV)/bin/pip install -qq --disable-pip-version-check -r requirements.txt || { \
	  echo "that failed; to see more: $(VENV)/bin/pip install -r requirements.txt" >&2; exit 1; }
	@touch $@

# --universal: one file for every Python from 3.11 on and every system, with environment markers.
# Versions that the file has are kept; with UPGRADE=--upgrade they become the newest.
HOW := make requirements (uv pip compile --universal --generate-hashes, of what pyproject.toml names)
COMPILE = UV_CUSTOM_COMPILE_COMMAND="$(HOW)" $(SUPPLY)/bin/uv pip compile --quiet \
  --no-config --universal --python-version 3.11 --generate-hashes $(UPGRADE)

requirements: $(SUPPLY)/.installed
	$(COMPILE) pyproject.toml --all-extras --group test --group check \
	  --group release --group docs \
	  --output-file requirements.txt
	$(COMPILE) --resolution lowest-direct pyproject.toml --all-extras --group test \
	  --output-file .ci/lowest.txt
	$(COMPILE) --group supply \
	  --output-file .ci/supply.txt

# --strict: what cannot be looked up counts as a failure.
audit: $(SUPPLY)/.installed
	$(SUPPLY)/bin/pip-audit --strict --disable-pip --require-hashes -r requirements.txt

sbom: $(INSTALLED) $(SUPPLY)/.installed
	@mkdir -p dist
	$(SUPPLY)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	  --output-file dist/sbom.json $(VENV)

# The same source makes the same bytes, wherever and whenever it is built.
wheel: $(INSTALLED)
	$(VENV)/bin/python -m build --no-isolation
	$(VENV)/bin/twine check --strict dist/walsh_scrapy-*

$(SUPPLY)/.installed: .ci/supply.txt
	@"$(PYTHON)" -m venv "$(SUPPLY)"
	@$(SUPPLY)/bin/pip install -qq --disable-pip-version-check -r .ci/supply.txt
	@touch $@

clean:
	@if [ -f "$(VENV)/pyvenv.cfg" ]; then echo "removing $(VENV)"; rm -rf "$(VENV)"; fi
	@echo "removing caches and build output"
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	  .import_linter_cache
	@find walsh_scrapy spiders tests benchmarks -name __pycache__ -type d -prune \
	  -exec rm -rf {} + 2>/dev/null || true
