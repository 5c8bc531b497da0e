# `make` alone prints this help.  Every target brings what it needs: Python 3.11 or newer and network
# are enough (and Go for `make chart`), root or not, no Docker.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
CODE    = $(wildcard helix_temporal workers examples bench deploy tests .ci)
TYPED   = helix_temporal tests $(wildcard workers/*.py deploy/helm/*/*.py bench/*.py bench/faults/*.py examples/*/*.py)

SEEDS  ?= 20000
KILLS  ?= 150
RUNS   ?= 50
SECONDS ?= 120
MINUTES ?= 30
TESTS  ?= tests
# Kills, wipes and seeded faults: `make test-faults`.
FAULTS  = tests/chaos tests/outside tests/simulation
# These, and what needs the frameworks' own packages (`make test-frameworks`) or Helm (`make chart`).
ELSEWHERE = $(FAULTS) tests/frameworks tests/chart
# What runs against other versions of the dependencies; providers of models have bounds of their own.
BOUNDS  = $(if $(filter tests,$(TESTS)),tests/unit tests/contracts tests/workflows,$(TESTS))
# LangChain's packages for Anthropic and OpenAI want newer versions of theirs than these tests are for.
WITH_LANGCHAIN = $(foreach name,anthropic_langchain_any_conversation cut_streams_in_sessions failures langchain sessions, \
    tests/adapters/test_$(name).py)
PROVIDERS = $(filter-out $(WITH_LANGCHAIN),$(wildcard tests/adapters/test_*.py))
PYTHON ?=
# More than there are cores: tests also wait for servers and time-outs.
JOBS   ?= 5
ARGS   ?=
PYTEST  = HELIX_REQUIRE_SERVICES=1 $(PY) -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder
CONVERSATION ?=

.PHONY: help
help: ## Print this help
	@echo "Usage: make <target>"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## Create .venv with all dependencies and real servers (once; about 1.7 GB)

$(STAMP): pyproject.toml constraints.txt
	@bash .ci/setup $(VENV)

.PHONY: demo
demo: setup ## The main job on real servers, start to end.  CONVERSATION=path plays another one
	$(PY) examples/quickstart/demo.py $(if $(CONVERSATION),"$(CONVERSATION)") $(ARGS)

.PHONY: dev
dev: setup ## Temporal with its UI, PostgreSQL, Valkey and S3 until Ctrl-C
	$(VENV)/bin/helix-temporal dev $(ARGS)

.PHONY: example
example: setup ## One of examples/ on a stack of its own: make example NAME=own_model
	$(VENV)/bin/helix-temporal dev --run "$(PY) examples/$(NAME)/$(NAME).py $(ARGS)"

.PHONY: test
test: setup ## Tests on real servers, but for the slow ones.  TESTS=tests/unit ARGS='-k name' narrow it, slow ones included
	$(PYTEST) $(TESTS) $(if $(filter tests,$(TESTS)),-m 'not slow and not campaign' $(ELSEWHERE:%=--ignore=%)) $(ARGS)

.PHONY: test-slow
test-slow: setup ## Tests that start many processes, kill them, or wait for clocks
	$(PYTEST) $(filter-out $(ELSEWHERE:%=%/%),$(shell grep -rl --include='test_*.py' 'mark\.slow' tests)) -m 'slow and not campaign' $(ARGS)

.PHONY: test-faults
test-faults: setup ## Short forms of simulate, chaos and outside: kills, wipes, resets, seeded faults
	$(PYTEST) $(FAULTS) $(ARGS)

.PHONY: test-lowest
test-lowest: setup ## The lowest dependencies that pyproject.toml allows.  PYTHON=… chooses one, TESTS=… narrows
	PYTHON=$(PYTHON) .ci/bounds lowest -n $(JOBS) --dist loadscope $(BOUNDS) $(ARGS)

.PHONY: test-providers
test-providers: setup ## The lowest versions of the libraries of models' providers.  PYTHON=… chooses one
	PYTHON=$(PYTHON) .ci/bounds providers -n $(JOBS) --dist loadscope $(PROVIDERS) $(ARGS)

.PHONY: test-frameworks
test-frameworks: setup ## Stores under the frameworks' own packages, lowest and newest.  NAME=openai-agents chooses one
	PYTHON=$(PYTHON) .ci/frameworks $(if $(NAME),-k $(NAME)) -n $(JOBS) --dist loadscope $(ARGS)

.PHONY: test-newest
test-newest: setup ## The newest dependencies that there are.  PYTHON=… chooses one, TESTS=… narrows
	PYTHON=$(PYTHON) .ci/bounds newest -n $(JOBS) --dist loadscope $(BOUNDS) $(ARGS)

.PHONY: lint
lint: setup ## Style, format and spelling
	$(PY) -m ruff check $(CODE)
	$(PY) -m ruff format --check $(CODE)
	$(VENV)/bin/codespell $(CODE) $(wildcard *.md docs)

.PHONY: fix
fix: setup ## Let ruff mend what it can
	$(PY) -m ruff check --fix $(CODE)
	$(PY) -m ruff format $(CODE)

.PHONY: types
types: setup ## mypy (strict) and pyright
	$(PY) -m mypy $(TYPED)
	$(PY) -m pyright --pythonpath $(PY)

.PHONY: arch
arch: setup ## Import contracts and the other architecture tests
	$(VENV)/bin/lint-imports --no-cache
	HELIX_REQUIRE_SERVICES=1 $(PY) -m pytest tests/architecture $(ARGS)

# Helm, as a Go module: no other registry that this project uses has it.
HELM    = build/tools/helm-v3.22.0
ACTIONLINT = build/tools/actionlint-v1.7.12
GO      = $(or $(shell command -v go),$(wildcard /usr/local/go/bin/go))

.PHONY: chart
chart: setup $(HELM) $(ACTIONLINT) ## The Helm chart: lint, bad values, golden manifests; and the workflows of .github.  WRITE=1 writes them
	$(if $(WRITE),HELIX_HELM_BINARY=$(HELM) $(PY) -m tests.chart)
	HELIX_HELM_BINARY=$(HELM) $(PY) -m pytest tests/chart $(ARGS)
	$(ACTIONLINT) -shellcheck= -pyflakes=

$(HELM):
	@.ci/go-tool "$(GO)" helm.sh/helm/v3/cmd/helm@v3.22.0 $@

$(ACTIONLINT):
	@.ci/go-tool "$(GO)" github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 $@

.PHONY: bench
bench: setup ## Benchmarks against their floors.  ONLY=append,hydrate QUICK=1; writes build/bench.json
	@mkdir -p build
	$(PY) -m bench $(if $(ONLY),--only=$(ONLY)) $(if $(QUICK),--quick) $(ARGS)

.PHONY: faults
faults: setup ## Each framework's best public store and ours under the same faults, as a table.  ONLY=langgraph WRITE=1
	$(PY) -m bench.faults $(if $(ONLY),--only $(ONLY)) $(if $(WRITE),--write) $(ARGS)

.PHONY: simulate
simulate: setup ## The protocol under seeded faults: make simulate SEEDS=100000; writes build/simulate.json
	@mkdir -p build
	$(PY) -m tests.simulation --seeds $(SEEDS) $(ARGS)

.PHONY: chaos
chaos: setup ## Real kills of real workers: make chaos KILLS=500; writes build/chaos.json
	@mkdir -p build
	$(PY) -m tests.chaos --kills $(KILLS) $(ARGS)

.PHONY: outside
outside: setup ## Programs of a user's own against the built wheel: make outside RUNS=50 SECONDS=120; writes build/outside.json
	$(PY) -m tests.outside --seeds $(RUNS) --seconds $(SECONDS) $(ARGS)

.PHONY: soak
soak: setup ## A worker under constant load: memory, connections, stalls of its loop.  MINUTES=30
	$(PY) -m tests.outside.soak --minutes $(MINUTES) $(ARGS)

.PHONY: campaign
campaign: setup ## Stores for long: races, crashes, random sequences, servers killed every second
	HELIX_CAMPAIGN=1 HELIX_REQUIRE_SERVICES=1 $(PY) -m pytest -v $(wildcard tests/contracts/test_session_*.py) $(ARGS)
	HELIX_REQUIRE_SERVICES=1 $(PY) -m pytest -v -m campaign $(TESTS) $(ARGS)

.PHONY: docs
docs: build/docs-venv/.installed ## The pages as a site: build/site/index.html
	NO_MKDOCS_2_WARNING=1 build/docs-venv/bin/python .ci/docs.py

build/docs-venv/.installed: docs/constraints.txt
	$(or $(PYTHON),python3) -m venv --clear build/docs-venv
	build/docs-venv/bin/python -m pip install --disable-pip-version-check --no-input --quiet -r docs/constraints.txt
	@touch $@

.PHONY: schema
schema: setup ## Write docs/schema.sql anew from the migrations
	$(PY) -m tests.docs._schema

.PHONY: constraints
constraints: ## Resolve all dependencies anew and rewrite constraints.txt
	@bash .ci/constraints

.PHONY: clean
clean: ## Remove what the targets made, .venv included
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
