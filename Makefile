# The two commands are `make demo` and `make test`; `make help` lists the rest. Needs Python 3.11 or later, pip and make.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
# pretix pins what the others need in other versions: its plugin has an environment of its own, and `make test-pretix`.
PLUGINS := $(filter-out plugins/pretix,$(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml)))
BIN := $(VENV)/bin
# Hundreds of tests start processes: each would compile the sources again.
unexport PYTHONDONTWRITEBYTECODE
# pip would compile all modules of all packages, most of which nobody imports: Python compiles what it imports.
export PIP_COMPILE := 0
# With about how many packages come; it shows how far pip is.
INSTALL = $(BIN)/python pip_progress.py $(1) --constraint constraints.txt
comma := ,
# What is the same on every database, or tried there by `make kill-lines`.
ANYWHERE := tests/django/security tests/smallest_shop/test_mutants.py tests/django/proofs/test_crashes.py tests/django/proofs/test_killing.py \
    $(patsubst %,tests/django/test_%.py,admin bad_input currencies languages observers pages settings tutorial webhook) \
    $(patsubst %,tests/django/operations/test_%.py,accepting accounts actions expect importing ledger mail status uninstalled values wrong_credentials)
# What PostgreSQL beside SQLite is enough for.
ON_POSTGRESQL := tests/django/test_celery.py tests/django/test_admin_figures.py tests/django/worker/test_watch.py \
    $(patsubst %,tests/django/operations/test_%.py,audit figures heartbeats settlement timeline)
# What another Python could change.
ON_OTHER_PYTHONS := tests/wire tests/hooks tests/test_account.py tests/test_client.py tests/test_lifecycle.py tests/test_money.py \
    tests/test_plugins.py tests/test_public_names.py tests/test_transport.py
# What takes long, and is run by `make test-long` and no other.
LONG := tests/benchmarks tests/fuzz tests/proving tests/django/proofs/test_killing.py tests/django/proofs/test_crashes.py \
    tests/smallest_shop/test_mutants.py tests/test_scaffold.py tests/testing/test_conformance.py \
    tests/testing/test_gateway_conformance.py tests/testing/test_shop_on_another_gateway.py

.PHONY: help setup environments demo test test-plugins test-long test-provers test-shop test-databases test-pythons test-pretix setup-simulator lint types types-plugins imports cassettes architecture reference reliability conformance conformance-stripe docs docs-check simulate simulate-mutants mutation prove exhaust outage chaos storm kill-lines fuzz fuzz-guided audit-dependencies versions release upgrade bench setup-bench clean clean-proofs

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##/\1\t/p' $(MAKEFILE_LIST) | expand -t 18

setup: $(VENV)/developer  ## build the environment for development (quick when nothing changed)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11")'
	@echo "building $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/developer: $(VENV)/bin/python pyproject.toml $(PLUGINS:%=%/pyproject.toml) constraints.txt
	@echo "installing Tillgate, its plugins and its development tools: 2 to 4 minutes the first time"
	@$(call INSTALL,130) --editable '.[dev]' $(PLUGINS:%=--editable '%[testing]')
	@touch $(VENV)/developer $(VENV)/demo

$(VENV)/demo: $(VENV)/bin/python pyproject.toml plugins/oscar/pyproject.toml constraints.txt
	@echo "installing Tillgate, its sandbox and django-oscar: 1 to 2 minutes the first time"
	@$(call INSTALL,43) --editable '.[sandbox]' --editable plugins/oscar sorl-thumbnail
	@touch $(VENV)/demo

demo: $(VENV)/demo  ## a shop to buy in, with the gateway's emulator; ONCE=1 walks through it and ends; DIALECT=v3 speaks version 3; GATEWAY=stripe takes play money at Stripe
	@$(if $(GATEWAY),$(BIN)/python -m example_shop.demo --check --gateway $(GATEWAY) $(if $(ONCE),--once) && $(call INSTALL,0) --editable plugins/$(GATEWAY))
	@SHOP_DIALECT=$(DIALECT) $(BIN)/python -m example_shop.demo $(if $(ONCE),--once) $(if $(GATEWAY),--gateway $(GATEWAY))

test:  ## the tests that must pass before a change lands, without the long ones
	@echo "about 4 minutes on two cores; the first time, 1 to 4 more for the installation into $(VENV)"
	@echo "[1/5] environment" && $(MAKE) --no-print-directory setup
	@echo "[2/5] style, types and imports" && $(MAKE) --no-print-directory -j2 lint types imports
	@echo "[3/5] the core" && $(BIN)/pytest -n 3 --ignore tests/django --ignore tests/shop --ignore tests/browser --ignore tests/example_shop $(LONG:%=--ignore %)
	@echo "[4/5] the Django app" && $(BIN)/pytest -n 2 tests/django $(LONG:%=--ignore %)
	@echo "[5/5] the functions for shop plugins" && $(BIN)/pytest -n 2 tests/shop

test-plugins: types-plugins  ## types and tests of the plugins but pretix's, each on its framework
	@$(foreach plugin,$(PLUGINS),echo "$(plugin)" && (cd $(plugin) && ../../$(BIN)/pytest -n 2) &&) true

types-plugins: setup  ## the types of the plugins but pretix's, two at a time
	@printf '%s\n' $(PLUGINS) | xargs -P 2 -I{} sh -c 'cd {} && ../../$(BIN)/python -m mypy --show-absolute-path'

test-long: setup  ## what takes long: fresh environments, the kit's own tests, crashes, a failover, a storm
	@$(BIN)/pytest -n 2 --dist loadgroup -m "not provers" $(LONG)

test-provers: setup  ## the tests of the long proofs, the fuzzer and the benchmarks themselves; `make prove` begins with them
	@$(BIN)/pytest -n 2 --dist loadgroup -m provers tests/proving tests/benchmarks tests/fuzz tests/django/proofs/test_killing.py

test-shop: setup  ## the example shop, and every page in a browser
	@$(BIN)/pytest -n 2 tests/example_shop
	@$(BIN)/pytest -n 2 tests/browser

test-databases: setup  ## the tests of the Django app again that a database can change, on PostgreSQL, and most of them on MariaDB
	@$(foreach database,postgresql mariadb,TILLGATE_TEST_DATABASE=$(database) $(BIN)/pytest -n 2 -m "not once" \
	    tests/django tests/smallest_shop $(ANYWHERE:%=--ignore %) $(if $(filter mariadb,$(database)),$(ON_POSTGRESQL:%=--ignore %)) &&) true

.venv-%/developer: pyproject.toml constraints.txt
	@python=$$(ls $$HOME/.pyenv/versions/$*.*/bin/python 2>/dev/null | tail -n 1); python=$${python:-python$*}; \
	    $$python --version >/dev/null 2>&1 || { echo "Python $* is not installed"; exit 1; }; \
	    $$python -m venv .venv-$* && .venv-$*/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

test-pythons: .venv-3.12/developer .venv-3.13/developer  ## the tests of wire, client and hooks on the other Pythons
	@$(foreach version,3.12 3.13,HYPOTHESIS_PROFILE=brief .venv-$(version)/bin/pytest -q -n 3 $(ON_OTHER_PYTHONS) &&) true

.venv-pretix/developer: pyproject.toml plugins/pretix/pyproject.toml plugins/pretix/constraints.txt
	@echo "installing pretix, Tillgate and its plugin into .venv-pretix"
	@test -x .venv-pretix/bin/python || $(PYTHON) -m venv .venv-pretix
	@.venv-pretix/bin/python pip_progress.py 0 --constraint plugins/pretix/constraints.txt \
	    --editable . --editable 'plugins/pretix[testing]'
	@touch .venv-pretix/developer

test-pretix: .venv-pretix/developer  ## the plugin for pretix, on a real pretix in an environment of its own
	@cd plugins/pretix && ../../.venv-pretix/bin/python -m mypy && ../../.venv-pretix/bin/pytest -n 2

.venv-simulator/developer: plugins/stripe/simulator-constraints.txt
	@echo "installing getpaid's Stripe simulator into .venv-simulator"
	@python=$$(ls $$HOME/.pyenv/versions/3.12.*/bin/python 2>/dev/null | tail -n 1); python=$${python:-python3.12}; \
	    test -x .venv-simulator/bin/python || $$python -m venv .venv-simulator
	@.venv-simulator/bin/pip install --quiet --disable-pip-version-check --constraint plugins/stripe/simulator-constraints.txt \
	    'python-getpaid-stripe[simulator]'
	@touch .venv-simulator/developer

setup-simulator: .venv-simulator/developer  ## build the environment of getpaid's Stripe simulator, which needs Python 3.12; the plugin for Stripe is tested with it

environments: .venv-simulator/developer .venv-pretix/developer .venv-docs/developer .venv-3.12/developer .venv-3.13/developer  ## build the other environments: the simulator, pretix, the site, other Pythons

lint: setup
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: setup
	@$(BIN)/python -m mypy

imports: setup
	@$(BIN)/lint-imports --no-cache

cassettes: setup  ## record the cassettes again, from the sandbox or from TILLGATE_BASE_URL, TILLGATE_MERCHANT_NO, TILLGATE_TOKEN
	@$(BIN)/pytest tests/test_cassettes.py --record-cassettes

.venv-docs/developer: docgen/site-constraints.txt
	@echo "installing MkDocs into .venv-docs"
	@test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/pip install --quiet --disable-pip-version-check --constraint docgen/site-constraints.txt \
	    mkdocs-material 'mkdocstrings[python]' mike ruff
	@touch .venv-docs/developer

# Material warns of MkDocs 2, which the constraints keep out.
docs: .venv-docs/developer  ## open the documentation site, and build it again whenever a page changes
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs serve --open

# Quiet, MkDocs would count no warning.
docs-check: .venv-docs/developer  ## build the documentation site; a link that leads nowhere is an error
	@mkdir -p var && NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict 2>var/docs.log || { cat var/docs.log; exit 1; }

architecture: setup  ## write the drawings and tables of ARCHITECTURE.md from the code
	@$(BIN)/python -m docgen architecture

reference: setup  ## write what docs/reference has from the signatures of hooks and of tillgate.shop
	@$(BIN)/python -m docgen reference

reliability: setup  ## write docs/reliability.md from what the long proofs left in var/proofs/; PROVEN="commit ..." of the last `make prove`
	@$(BIN)/python -m docgen reliability $(if $(PROVEN),--proven '$(PROVEN)')

conformance: setup .venv-pretix/developer  ## run the conformance kit on every shop, or on ONLY="oscar ...", and write the tables of scenarios
	@$(BIN)/python -m docgen conformance $(ONLY)

conformance-stripe: setup setup-simulator .venv-pretix/developer  ## run the shops' scenarios with Stripe as the gateway, on ONLY="oscar ...", and write the table
	@.venv-pretix/bin/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target var/stripe stripe==16.1.0 plugins/stripe
	@$(BIN)/python -m docgen conformance-stripe $(ONLY)

simulate: setup  ## play SEED=1 (or 1-100) with the payments of PAYMENTS=1000 orders in a world where everything goes wrong; ONLY=17, WITHOUT="network,crashes", TRACE=1, RESULTS=file
	@DJANGO_SETTINGS_MODULE=tests.proving.project $(BIN)/python -m tests.proving.simulation \
	    --driver tests.smallest_shop.telling:TellingDriver --seed $(or $(SEED),1) --payments $(or $(PAYMENTS),1000) \
	    $(if $(ONLY),--only '$(ONLY)') $(if $(WITHOUT),--without '$(WITHOUT)') $(if $(TRACE),--trace) $(if $(RESULTS),--results '$(RESULTS)')

simulate-mutants: setup  ## break the shop and the core in many ways, and see after how many payments the simulator notices; ONLY="refund"
	@DJANGO_SETTINGS_MODULE=tests.proving.project TILLGATE_TEST_DATABASE=sqlite $(BIN)/python -m tests.proving.biting \
	    $(if $(ONLY),--only '$(ONLY)') $(if $(RESULTS),--results '$(RESULTS)')

PROOFS := var/proofs
prove: setup  ## the long proofs of the code as it is, for hours on two cores, and the page docs/reliability.md; each goes on where it was
	@echo "[1/8] the tests of the proofs themselves" && $(MAKE) --no-print-directory test-provers
	@echo "[2/8] 60,000 payments on SQLite" && printf '%s\n' 1-50 51-100 \
	    | xargs -P 2 -I{} $(MAKE) --no-print-directory simulate SEED={} PAYMENTS=840 RESULTS=$(PROOFS)/simulation.jsonl
	@echo "[3/8] 4,000 on PostgreSQL, and on MariaDB" && printf '%s\n' postgresql mariadb | xargs -P 2 -I{} \
	    env TILLGATE_TEST_DATABASE={} $(MAKE) --no-print-directory simulate SEED=1-7 PAYMENTS=840 RESULTS=$(PROOFS)/simulation.jsonl
	@echo "[4/8] every mutant" && $(MAKE) --no-print-directory simulate-mutants RESULTS=$(PROOFS)/mutants.jsonl
	@echo "[5/8] a sample of the lines to kill at" && $(MAKE) --no-print-directory kill-lines SAMPLE=6
	@echo "[6/8] chaos" && $(MAKE) --no-print-directory chaos MINUTES=5 RESULTS=$(PROOFS)/chaos.jsonl
	@echo "[7/8] the storm" && $(MAKE) --no-print-directory storm PEER_PAYMENTS=100 RESULTS=$(PROOFS)/storm.jsonl
	@echo "[8/8] hostile input" && $(MAKE) --no-print-directory fuzz INPUTS=200000 RESULTS=$(PROOFS)/fuzz.jsonl
	@$(MAKE) --no-print-directory reliability PROVEN=$$(git rev-parse --short=12 HEAD)

exhaust: setup  ## try everything that can happen to one order, in every order; SCOPE="payments=1,crashes=0" for less
	@DJANGO_SETTINGS_MODULE=tests.proving.project TILLGATE_TEST_DATABASE=sqlite $(BIN)/python -m tests.proving.simulation \
	    --driver tests.smallest_shop.driver:SmallestShopDriver --exhaust '$(SCOPE)' $(if $(RESULTS),--results '$(RESULTS)')

outage: setup  ## take the gateway away for DAYS=30 while PAYMENTS=1000 are open, and see what one worker run makes good; SEED=1
	@DJANGO_SETTINGS_MODULE=tests.proving.project $(BIN)/python -m tests.proving.simulation \
	    --driver tests.smallest_shop.telling:TellingDriver --outage $(or $(DAYS),30) --seed $(or $(SEED),1) \
	    --payments $(or $(PAYMENTS),1000) $(if $(RESULTS),--results '$(RESULTS)')

chaos: setup  ## sell for MINUTES=1 while kill -9 hits the shop's processes and its database, and compare the ledger; SHOPPERS=3, SEED=1
	@$(BIN)/python -m tests.proving.chaos --minutes $(or $(MINUTES),1) --seed $(or $(SEED),1) --shoppers $(or $(SHOPPERS),3) \
	    $(if $(RESULTS),--results '$(RESULTS)')

storm: setup  ## many copies of the notifications of PAYMENTS=1000 at once, then shoppers for SECONDS=60; DATABASES="mariadb", PEER_PAYMENTS=100, RESULTS=file
	@$(BIN)/python -m tests.proving.storm $(if $(DATABASES),--databases $(DATABASES)) --payments $(or $(PAYMENTS),1000) \
	    --seconds $(or $(SECONDS),60) $(if $(PEER_PAYMENTS),--peer-payments $(PEER_PAYMENTS)) $(if $(RESULTS),--results '$(RESULTS)')

kill-lines: setup  ## kill a process at every line of its work, or at SAMPLE=20 of each act, SEED=1; DATABASE="sqlite mariadb", PART=1/2
	@printf '%s\n' $(or $(DATABASE),sqlite postgresql mariadb) \
	    | DJANGO_SETTINGS_MODULE=tests.django.project TILLGATE_TEST_NAME=$${TILLGATE_TEST_NAME:-tillgate_killed} \
	        xargs -P 3 -I{} env TILLGATE_TEST_DATABASE={} $(BIN)/python -m tests.proving.killing \
	            --driver tests.smallest_shop.telling:TellingDriver --package tests.smallest_shop \
	            $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) $(if $(PART),--part $(PART))

fuzz: setup  ## draw INPUTS=20000 from SEED=1 on, of everything that comes from outside; TARGET="status", RESULTS=file to go on from
	@$(BIN)/python -m tests.fuzz --inputs $(or $(INPUTS),20000) --seed $(or $(SEED),1) $(if $(TARGET),--target '$(TARGET)') \
	    $(if $(RESULTS),--results '$(RESULTS)')

fuzz-guided: .venv-fuzz/developer  ## the readers led by their own lines, with atheris: TARGET="notifications, read", RUNS=100000
	@mkdir -p artefacts/fuzz
	@.venv-fuzz/bin/python -m tests.fuzz.guided '$(or $(TARGET),answers to query$(comma) read)' -runs=$(or $(RUNS),100000) \
	    -seed=$(or $(SEED),1) -max_len=4096 -len_control=0 -verbosity=0 -print_final_stats=1 -artifact_prefix=artefacts/fuzz/

.venv-fuzz/developer: tests/fuzz/constraints.txt pyproject.toml
	@test -x .venv-fuzz/bin/python || $(PYTHON) -m venv .venv-fuzz
	@.venv-fuzz/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --constraint tests/fuzz/constraints.txt \
	    --editable '.[testing]' atheris hypothesis
	@touch .venv-fuzz/developer

mutation: .venv-mutation/developer  ## change the code in one place at a time, and see whether a test notices; ONLY="tillgate.wire.signing.*" does those anew
	@.venv-mutation/bin/python -m tests.proving.mutation $(if $(ONLY),--only '$(ONLY)') $(if $(RESULTS),--results '$(RESULTS)')

.venv-mutation/developer: tests/proving/mutation/constraints.txt pyproject.toml
	@echo "installing Tillgate and mutmut into .venv-mutation"
	@test -x .venv-mutation/bin/python || $(PYTHON) -m venv .venv-mutation
	@.venv-mutation/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	    --constraint tests/proving/mutation/constraints.txt --editable '.[async,celery,django,otel,testing]' hypothesis mutmut opentelemetry-sdk
	@touch .venv-mutation/developer

audit-dependencies: setup  ## look for known holes in what is installed; says so where their list cannot be reached
	@test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv .venv-audit \
	    && .venv-audit/bin/pip install --quiet --disable-pip-version-check 'pip-audit>=2.7,<3'; }
	@$(BIN)/python tests/audit_dependencies.py .venv-audit/bin/pip-audit

versions: setup  ## run a sample of the tests on each Python, Django and framework, or on ONLY="oscar lowest", and on the Saleor at SALEOR_URL; write the table
	@$(BIN)/python -m docgen versions $(ONLY)

.venv-release/developer: tests/release/constraints.txt
	@test -x .venv-release/bin/python || $(PYTHON) -m venv .venv-release
	@.venv-release/bin/pip install --quiet --disable-pip-version-check --constraint tests/release/constraints.txt \
	    build check-wheel-contents httpx 'readme_renderer[md]' twine
	@touch .venv-release/developer

release: .venv-release/developer  ## build the archives of all distributions into dist/, check them, and try them in clean environments; HOME_URL=https://github.com/OWNER/tillgate for links and pictures on their pages, TRIALS="oscar pretix" or nothing
	@.venv-release/bin/python -m tests.release $(if $(HOME_URL),--home '$(HOME_URL)') $(if $(TRIALS),--only $(TRIALS))

upgrade: setup  ## upgrade a shop that an older version filled, while old and new processes sell side by side; DATABASES="sqlite mariadb", OLD=dist, COMMIT=v0.1.0, SECONDS=60
	@$(BIN)/python -m tests.release.upgrade $(if $(DATABASES),--database $(DATABASES)) $(if $(OLD),--old '$(OLD)') \
	    $(if $(COMMIT),--old-commit '$(COMMIT)') $(if $(SECONDS),--seconds $(SECONDS))

bench: setup  ## measure, and write docs/performance.md
	@$(BIN)/python -m benchmarks

setup-bench:  ## build the environment in which dj-stripe, a peer of the benchmarks, is measured
	@$(PYTHON) -m venv .venv-bench
	@.venv-bench/bin/pip install --quiet --disable-pip-version-check --constraint benchmarks/peer/constraints.txt \
	    dj-stripe gunicorn 'psycopg[binary]' pymysql

clean:  ## remove what the other targets made, but for what the long proofs noted
	rm -rf .venv .venv-* .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist artefacts

clean-proofs:  ## remove what the long proofs noted, which took hours: mutants/ and var/proofs/
	rm -rf mutants var/proofs
