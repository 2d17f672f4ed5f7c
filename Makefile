# The commands of the project. `make` alone lists them.

VENV ?= .venv
REQUIREMENTS ?= requirements.txt
ENVIRONMENT ?= latest
PORT ?= 8000
WORKERS ?= 2
export LIVE ?= 1

BIN := $(VENV)/bin
PAPER := _build/paper/attention-number-by-number
INSTALLED := $(VENV)/.installed
SITE := _build/.site
CHOICE := _build/.live-$(LIVE)

# The first Python on PATH that is new enough.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null && echo $$python && break; done)

# The tests run in several processes. The tests of a file stay together, and long files start first
# (tests/conftest.py), so that no process waits for the last file of another. Each keeps to one core:
# threads of BLAS and PyTorch without a core to themselves take longer than one thread. A process
# that dies ends the run, since its successor might wait for work for ever.
PYTEST = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest \
	--numprocesses $(WORKERS) --max-worker-restart 0 --dist loadfile --no-loadscope-reorder

# Everything a page is made of; folders too, so that a removed file counts as a change.
SOURCES := _config.yml _toc.yml Makefile $(shell find attnlib chapters web/css web/extensions \
	web/images web/js web/live web/mathematics web/status web/tools/live_engine.py web/vendor -not -path '*/.*' \
	-not -path '*/__pycache__*')

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help book serve test quick library lint browser notebooks status bench pdf epub lighthouse live archive vendor clean _library

help: ## list the commands
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

book: $(SITE) ## build the site in _build/html; makes .venv the first time; LIVE=0: no cells that run
	@echo "The book is ready. Open file://$(CURDIR)/_build/html/index.html, or run: make serve"

serve: $(SITE) ## show the site at an address of this machine only
	@echo "The book is at http://127.0.0.1:$(PORT) until you press Ctrl-C"
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory _build/html $(PORT)

test: lint $(SITE) browser ## everything that continuous integration runs
	$(PYTEST) --nbval --nbval-current-env --durations=15 tests chapters

quick: lint ## the loop of daily work: at most two minutes
	$(PYTEST) -x -q --durations=5 -m "not slow" tests

library: ## test the library with other releases: ENVIRONMENT=minimum or latest
	@$(MAKE) --no-print-directory _library VENV=_build/$(ENVIRONMENT) \
		REQUIREMENTS=tests/environments/$(ENVIRONMENT).txt

lint: $(INSTALLED) ## check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

browser: $(INSTALLED) ## find or fetch the Chromium of the browser tests
	@$(BIN)/python web/tools/chromium.py

notebooks: $(INSTALLED) ## run all notebooks in place and store their outputs
	$(BIN)/python web/notebooks/execute.py chapters/*.ipynb

status: $(INSTALLED) ## check each chapter and law once, and store what came out for the status page
	$(BIN)/python web/status/record.py

bench: $(INSTALLED) ## measure the library beside others (takes long; not part of the tests)
	$(BIN)/python -m benchmarks

pdf: $(PAPER).pdf ## print the book in _build/paper, from the built site; needs the browser of the tests

epub: $(PAPER).epub ## make the book for e-readers in _build/paper and check it; needs Java

lighthouse: $(SITE) browser ## have Lighthouse judge the built pages (needs npm and an idle machine)
	$(BIN)/python web/lighthouse/measure.py

live: $(SITE) browser ## time the first output of cells in the page (needs an idle machine)
	$(BIN)/python web/tools/first_output.py

archive: $(PAPER).pdf $(PAPER).epub ## pack site, PDF, EPUB, notebooks, wheel and checksums in _build/paper
	$(BIN)/python web/paper/archive.py

vendor: $(INSTALLED) ## fetch the files in web/vendor anew (maintainers; needs npm)
	$(BIN)/python web/tools/vendor.py

clean: ## remove what was built, but not .venv
	rm -rf _build

$(PAPER).pdf: $(SITE) web/paper/print.css $(wildcard web/paper/*.py)
	@$(MAKE) --no-print-directory browser
	$(BIN)/python web/paper/pdf.py

$(PAPER).epub: $(SITE) web/paper/epub.css web/paper/requirements.txt $(wildcard web/paper/*.py)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r web/paper/requirements.txt
	$(BIN)/python web/paper/epub.py

_library: $(INSTALLED)
	$(PYTEST) -q tests/attnlib

$(SITE): $(INSTALLED) $(SOURCES) $(CHOICE)
	@$(BIN)/python web/tools/vendor.py --check
	@rm -rf _build/html _build/.doctrees _build/jupyter_execute $@
	$(BIN)/jupyter-book build . -W -n --keep-going --all --quiet
	@touch $@

$(CHOICE): # a site with live cells is another one than a site without
	@mkdir -p _build
	@rm -f _build/.live-*
	@touch $@

$(INSTALLED): $(REQUIREMENTS) pyproject.toml
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null || \
		{ echo "Python 3.11 or newer is needed: install it, or name it: make book PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -r $(REQUIREMENTS)
	@touch $@
