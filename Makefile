# Needs Python 3.11 to 3.14 and make; everything else is installed into .venv, once.
PYTHON ?= python3
# versions that were tried together; CONSTRAINTS=/dev/null takes the newest
CONSTRAINTS ?= constraints.txt
BIN := .venv/bin
STAMP := .venv/installed

export PATH := $(CURDIR)/$(BIN):$(PATH)
export VIRTUAL_ENV := $(CURDIR)/.venv
# compiled kernels are kept here, so that a second run starts at once
export NUMBA_CACHE_DIR ?= $(CURDIR)/_build/numba
unexport PYTHONHOME
unexport PYTHONPATH

.PHONY: book test slow calibrate lint bench

book: $(STAMP)
	$(BIN)/gdd book

test: lint
	$(BIN)/pytest -q -n 2 --dist loadfile
	$(BIN)/pytest -q -n 2 --dist loadfile --nbval --nbval-current-env --nbval-sanitize-with tests/nbval_sanitize.cfg tests/reference

lint: $(STAMP)
	$(BIN)/ruff check .

# hours
slow: $(STAMP)
	$(BIN)/pytest -q -m slow -n 2 --dist loadfile --durations 0

# half an hour and more: the full check of the sampler against the model, and of the misprints that must fail it
calibrate: $(STAMP)
	$(BIN)/pytest -q -m slow -k calibration
	$(BIN)/gdd run calibration --scale paper

bench: $(STAMP)
	$(BIN)/gdd bench

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; \
	    sys.exit(None if (3, 11) <= v < (3, 15) else "Python 3.11 to 3.14 is needed, %d.%d found: make PYTHON=python3.11" % v)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e ".[book,test]"
	touch $@
