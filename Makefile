# The two commands are `make demo` and `make test`; `make help` lists the rest. Needs Python 3.11 or
# later, pip and make. All other checks are sessions of nox (`.venv/bin/nox --list`), the long proofs
# are `.venv/bin/python -m proving`.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# pretix pins what the others need in other versions: `nox -s pretix` has an environment of its own.
PLUGINS := $(filter-out plugins/pretix,$(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml)))
# pip would compile all modules of all packages, most of which nobody imports.
export PIP_COMPILE := 0
# uv installs in a quarter of pip's time; where it does not reach an index, pip does the same.
INSTALL = if [ -x $(BIN)/uv ]; then $(BIN)/uv pip install --python $(BIN)/python --constraint constraints.txt $(1); else false; fi \
    || $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt $(1)

.PHONY: help setup demo test docs release ci clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##/\1\t/p' $(MAKEFILE_LIST) | expand -t 10

setup: $(VENV)/developer  ## build the environment for development (quick when nothing changed)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11")'
	@echo "building $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv || echo "without uv: pip takes longer"

$(VENV)/developer: $(VENV)/bin/python pyproject.toml $(PLUGINS:%=%/pyproject.toml) constraints.txt
	@echo "installing Tillgate, its plugins and its development tools"
	@$(call INSTALL,--editable '.[dev]' $(PLUGINS:%=--editable '%[testing]'))
	@touch $(VENV)/developer $(VENV)/demo

$(VENV)/demo: $(VENV)/bin/python pyproject.toml plugins/oscar/pyproject.toml constraints.txt
	@echo "installing Tillgate, its sandbox and django-oscar"
	@$(call INSTALL,--editable '.[sandbox]' --editable plugins/oscar sorl-thumbnail)
	@touch $(VENV)/demo

demo: $(VENV)/demo  ## a shop to buy in, with the gateway's emulator; ONCE=1 walks through it and ends; DIALECT=v3 speaks version 3; GATEWAY=stripe sells through an imitation of Stripe, or with STRIPE_TEST_KEY at Stripe
	@$(if $(GATEWAY),$(BIN)/python -m example_shop.demo --check --gateway $(GATEWAY) $(if $(ONCE),--once) && { $(call INSTALL,--editable plugins/$(GATEWAY)); })
	@SHOP_DIALECT=$(DIALECT) $(BIN)/python -m example_shop.demo $(if $(ONCE),--once) $(if $(GATEWAY),--gateway $(GATEWAY))

test: setup  ## what must pass before a change lands: style, types, and the tests on SQLite without the long ones
	@echo "less than 5 minutes on two cores"
	@$(BIN)/nox -s lint
	@$(BIN)/nox -s types & $(BIN)/nox -s 'tests(sqlite)' && wait $$! # the first tests leave half a core free

docs: setup  ## open the documentation site, and build it again whenever a page changes
	@$(BIN)/nox -s docs -- serve --open

release: setup  ## build the archives of all distributions into dist/, check and try them; HOME_URL=https://github.com/OWNER/tillgate; TRIALS="oscar pretix" tries those again, PATIENCE=3 waits three times as long
	@$(BIN)/nox --install-only -s pretix
	@$(BIN)/nox -s release -- $(if $(HOME_URL),--home '$(HOME_URL)') $(if $(TRIALS),--only $(TRIALS)) $(if $(PATIENCE),--patience $(PATIENCE))

ci:  ## all that must pass before a change lands, with the longer tests and a part of each proof
	@.ci/run

clean:  ## remove what the other targets made, but for mutants/ and var/proofs/, which take hours
	rm -rf .venv .venv-* .nox .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist artefacts
