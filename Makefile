# The commands of the project. `make` alone lists them.

VENV ?= .venv
PORT ?= 8000
BIN := $(VENV)/bin
ENVIRONMENT := $(VENV)/.installed
SITE := _build/.site

# The first Python on PATH that is new enough.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null && echo $$python && break; done)

# Everything a page is made of; folders too, so that a removed file counts as a change.
SOURCES := _config.yml _toc.yml Makefile \
	$(shell find attnlib chapters web -not -path '*/.*' -not -path '*/__pycache__*' -not -path 'web/notebooks*')

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help book serve test quick lint browser notebooks vendor clean

help: ## list the commands
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

book: $(SITE) ## build the site in _build/html; sets up .venv the first time
	@echo "The book is ready. Open file://$(CURDIR)/_build/html/index.html, or run: make serve"

serve: $(SITE) ## serve the site on this machine only
	@echo "Serving the book on http://127.0.0.1:$(PORT) (stop with Ctrl-C)"
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory _build/html $(PORT)

test: lint $(SITE) browser ## everything that continuous integration runs
	$(BIN)/python -m pytest --durations=15 --nbval --nbval-current-env tests chapters

quick: lint ## the loop of daily work: at most two minutes
	$(BIN)/python -m pytest -x -q --durations=5 -m "not slow" --nbval --nbval-current-env tests chapters

lint: $(ENVIRONMENT) ## check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

browser: $(ENVIRONMENT) ## find or fetch the Chromium of the browser tests
	@$(BIN)/python web/tools/chromium.py

notebooks: $(ENVIRONMENT) ## run all notebooks in place and store their outputs
	$(BIN)/python web/notebooks/execute.py chapters/*.ipynb

vendor: $(ENVIRONMENT) ## fetch the browser files in web/vendor anew (maintainers; needs npm)
	$(BIN)/python web/tools/vendor.py

clean: ## remove what was built (not .venv)
	rm -rf _build

$(SITE): $(ENVIRONMENT) $(SOURCES)
	@$(BIN)/python web/tools/vendor.py --check
	@rm -rf _build/html _build/.doctrees _build/jupyter_execute $@
	$(BIN)/jupyter-book build . -W -n --keep-going --all --quiet
	@touch $@

$(ENVIRONMENT): requirements.txt pyproject.toml
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null || \
		{ echo "Python 3.11 or newer is needed: install it, or name it: make book PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements.txt
	@touch $@
