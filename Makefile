# dynaduck. Needs Python 3.11 or newer, make and pip; everything else goes into .venv.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

BIN := .venv/bin
CODE := connector accelerator checkpoints metrics emulator
DEMO_ARGS ?=
PYTEST_ARGS ?=
# More than two cores: much of what the suite does is to wait for a service.
WORKERS ?= 3
SOAK_ARGS ?=
BENCH_ARGS ?=
MUTANTS ?=

.PHONY: help venv demo test test-duckdb155 soak lint format bench bench-quick docs check-deploy check-page situations mutants requirements constraints clean

help: ## This list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

venv: .venv/.installed ## Make .venv and install; costs nothing when nothing changed

.venv/.installed: pyproject.toml constraints.txt .ci/venv
	@PYTHON="$(PYTHON)" .ci/venv .venv

demo: venv ## The whole product on an emulated table, ends by proving both sides equal (DEMO_ARGS="--seconds 20")
	@$(BIN)/dynaduck demo $(DEMO_ARGS)

test: venv ## The suite, on DuckDB 2.0
	$(BIN)/python -m pytest -n $(WORKERS) --dist load --maxschedchunk 1 -m "not soak" $(PYTEST_ARGS)

# DuckDB 1.5.5 alone in a directory that comes first on the path; the rest is .venv's.
.venv155/.installed: .venv/.installed
	@if [ ! -d .venv155/duckdb ]; then \
	  rm -rf .venv155 && $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --target .venv155 duckdb==1.5.5; \
	fi
	@touch $@

test-duckdb155: .venv155/.installed ## The tests that touch DuckDB, on DuckDB 1.5.5
	@PYTHONPATH=.venv155 $(BIN)/python -c 'import duckdb, sys; sys.exit(duckdb.__version__ != "1.5.5")'
	PYTHONPATH=.venv155 $(BIN)/python -m pytest -n $(WORKERS) --dist load --maxschedchunk 1 -m "uses_duckdb and not soak" --none-is-fine $(PYTEST_ARGS)

soak: venv ## The long runs: hundreds of kills, hours of virtual time
	$(BIN)/python -m pytest -m soak --timeout 7200 $(SOAK_ARGS)

lint: venv ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(CODE) tests bench deploy
	$(BIN)/lint-imports --no-cache

format: venv ## Let ruff rewrite what it can
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

bench: venv ## Every benchmark, with a results table (BENCH_ARGS)
	$(BIN)/python -m bench $(BENCH_ARGS)

bench-quick: venv ## The benchmarks on small tables, under five minutes on a quiet machine
	$(BIN)/python -m bench --quick $(BENCH_ARGS)

docs: venv ## Write the generated pages of docs/ anew and build the site, warnings as errors
	$(BIN)/python -m connector.config.page > docs/settings.md.new && mv docs/settings.md.new docs/settings.md
	$(BIN)/python -m metrics.reference > docs/metrics.md.new && mv docs/metrics.md.new docs/metrics.md
	@$(MAKE) --no-print-directory .venv-docs/.installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict
	@echo "The site is build/site/index.html"

# mkdocs in an environment of its own: the service and its tests do without.
.venv-docs/.installed: pyproject.toml constraints.txt
	@echo "Installing mkdocs into .venv-docs (once)"
	@rm -rf .venv-docs && $(BIN)/python -m venv --without-pip .venv-docs
	@$(BIN)/python -m pip --disable-pip-version-check --python .venv-docs/bin/python install -qq --constraint constraints.txt \
	  $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	@touch $@

check-deploy: venv ## Alerts by promtool (each must fire), the compose file and the systemd unit by their tools
	@command -v promtool >/dev/null || { echo "check-deploy needs promtool: apt-get install prometheus, or a release of Prometheus" >&2; exit 1; }
	promtool check config deploy/prometheus/prometheus.yml --syntax-only
	promtool check rules deploy/prometheus/rules.yml
	promtool test rules deploy/prometheus/rules.test.yml
	@# 3 is a matter of taste: lag_ms is not in seconds, since its name is that of Spice.
	$(BIN)/python -m tests.metrics_text | { promtool check metrics || test $$? -eq 3; }
	@if docker compose version >/dev/null 2>&1; then docker compose config --quiet && echo "docker-compose.yml is valid"; \
	elif command -v docker-compose >/dev/null; then docker-compose config --quiet && echo "docker-compose.yml is valid"; \
	else echo "docker-compose.yml is not checked: no docker compose here"; fi
	@if command -v systemd-analyze >/dev/null; then \
	  unit=$$(mktemp -d)/dynaduck.service && sed 's|/opt/dynaduck/bin/dynaduck|/bin/true|' deploy/systemd/dynaduck.service > $$unit \
	  && systemd-analyze verify $$unit && echo "dynaduck.service is valid"; \
	else echo "dynaduck.service is not checked: no systemd-analyze here"; fi

check-page: venv ## The status page in Chromium, in each state; screenshots in build/page
	@$(BIN)/python -c 'import playwright' || { echo "check-page needs playwright (pip install playwright) and chromium" >&2; exit 1; }
	$(BIN)/python -m pytest tests/browser/page_check.py $(PYTEST_ARGS)

situations: venv ## The tests of the public reports, and the numbers that have none
	$(BIN)/python -m pytest -n $(WORKERS) -m "situation and not soak" --situations $(PYTEST_ARGS)

mutants: venv ## Put each wrong variant into a copy of the code and see it caught (MUTANTS="part of a name")
	$(BIN)/python -m tests.mutants "$(MUTANTS)"

requirements: venv ## The requirements of the checkpoint store, and those without a test
	$(BIN)/python -m tests.requirements $(PYTEST_ARGS)

constraints: ## Resolve anew and write constraints.txt (asks the network)
	rm -rf .venv.resolve && python3.11 -m venv .venv.resolve
	.venv.resolve/bin/python -m pip --disable-pip-version-check install --quiet --editable '.[dev,docs]'
	{ echo "# The versions that the suite is run with. Written by: make constraints"; \
	  .venv.resolve/bin/python -m pip freeze --exclude-editable; } > constraints.txt
	rm -rf .venv.resolve

clean: ## Remove the environments and caches
	rm -rf .venv .venv155 .venv-docs .venv.resolve .mypy_cache .ruff_cache .pytest_cache .hypothesis
