# `make serve` and `make test` are all that a newcomer needs; `make help` lists the rest.
CONFIG ?= configs/embedded.yaml
PORT ?=
OPS_PORT ?=
EXTRA ?= $(if $(shell command -v nvidia-smi 2>/dev/null),gpu,cpu)
TESTS ?= tests
RUNS ?= 400
SCHEDULES ?= 100000
BIN := .venv/bin

DATA ?= ../shared/eval
MODEL ?=

LITELLM := benchmarks/overhead/litellm-venv

.PHONY: help serve test test-fast test-long test-python test-faults test-simulation test-mutants check lint bench bench-quality bench-ledger bench-overhead bench-prefix-cache bench-soak bench-burst bench-compress bench-savings bench-answers docs wheel sbom format install clean
.DEFAULT_GOAL := help
# No "Entering directory", no echo of recipes: what is printed is what pith says.
MAKEFLAGS += --no-print-directory
.SILENT:
# Benchmarks at the same time would measure each other.
.NOTPARALLEL:

ifneq ($(and $(filter bench,$(MAKECMDGOALS)),$(ARGS)),)
$(error make bench takes no ARGS, since its benchmarks have different options; run one alone: make bench-overhead ARGS="$(ARGS)")
endif

help: ## this list
	sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

serve: install ## start the server (CONFIG=configs/embedded.yaml; PORT= and OPS_PORT= for others than the file says)
	exec $(BIN)/pith serve --config $(CONFIG) $(if $(PORT),--port $(PORT)) \
		$(if $(OPS_PORT),--ops-port $(OPS_PORT))

test: install ## every test but the long ones, with real Ray and vLLM where a test says so (TESTS=tests/...)
	exec scripts/test $(TESTS)

test-long: install ## the tests that prove on more of a kind what `make test` proves on less
	exec $(BIN)/python -m pytest -m long $(TESTS)

test-fast: install ## the tests that start neither Ray nor vLLM, within a minute
	exec $(BIN)/python -m pytest -n 2 -m "not integration and not thorough" $(TESTS)

test-python: ## the tests on another Python, in a checkout and an environment of its own (PYTHON=python3.12)
	exec scripts/test-python $(PYTHON)

test-faults: install ## kill, stop and fill everything under load, and audit the ledger (RUNS=400)
	exec $(BIN)/python -m tests.faults --runs $(RUNS)

test-simulation: install ## the ledger in simulation: any number of schedules, each from a seed (SCHEDULES=100000)
	exec $(BIN)/python -m tests.simulation --schedules $(SCHEDULES)

test-mutants: install ## wrong changes of the code that moves money, and whether a test notices each (ARGS="--only leases")
	exec $(BIN)/python -m tests.mutants $(ARGS)

check: lint ## before a commit: lint, then the fast tests
	$(BIN)/python -m pytest -q -n 2 -m "not integration and not thorough"

lint: install ## what CI runs before the tests: format, lint, types, import arrows, dependencies
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/deptry .
	# Without the dev extra: a user has none of it.
	$(BIN)/deptry serve models compression billing --optional-dependencies-dev-groups dev --ignore DEP002

bench: bench-ledger bench-overhead bench-soak bench-burst ## every benchmark; those of compression on a server of its own (about half an hour)
	$(BIN)/python -m benchmarks.served -- $(MAKE) bench-compress PORT={port} ARGS="--pid {pid}"
	$(if $(wildcard $(DATA)),exec $(BIN)/python -m benchmarks.served -- $(MAKE) bench-quality PORT={port},\
		echo "make: bench-quality is left out, since there is no $(DATA)" >&2)

bench-quality: install ## what a running server's compression keeps (PORT=, MODEL=, DATA=folder of evaluation files, ARGS="--limit 50")
	PITH_API_KEY=$${PITH_API_KEY:-$$(cat var/demo-key)} exec $(BIN)/python -m benchmarks.quality --data $(DATA) \
		--url http://127.0.0.1:$(or $(PORT),8000) $(if $(MODEL),--model $(MODEL)) $(ARGS)

bench-ledger: install ## what hold and settle cost on SQLite and PostgreSQL (ARGS="--seconds 5 --clients 1,16")
	exec $(BIN)/python -m benchmarks.ledger $(ARGS)

bench-overhead: install ## pith compared with bare vLLM, Ray Serve LLM and LiteLLM (ARGS="--sides bare,pith --clients 1,16"; ARGS=--stop-idle below 20 GiB)
	$(if $(findstring --sides,$(ARGS)),,$(LITELLM) $(BIN)/python || echo "make: LiteLLM is left out" >&2)
	exec $(BIN)/python -m benchmarks.overhead $(ARGS)

bench-prefix-cache: install ## routing by caches beside one big cache and Ray's own router (ARGS="--data FILE")
	exec $(BIN)/python -m benchmarks.prefix_cache $(ARGS)

bench-soak: install ## memory, open files and loop lag of `pith serve` under a fixed rate (ARGS="--requests 100000 --rate 50")
	exec $(BIN)/python -m benchmarks.soak $(ARGS)

bench-burst: install ## 1,000 requests at once, JSON, SSE and long contexts, and /health meanwhile (ARGS="--requests 1000 --kinds json")
	exec $(BIN)/python -m benchmarks.burst $(ARGS)

bench-compress: install ## latency of a running server's compression by size, ratio, clients (PORT=, ARGS="--models pith-lexical")
	exec $(BIN)/python -m benchmarks.compress --url http://127.0.0.1:$(or $(PORT),8000) $(ARGS)

bench-savings: install ## what compression inside chat saves: bills, tokens, cache hits, waiting times (DATA=, ARGS="--prices free --sessions 20")
	exec $(BIN)/python -m benchmarks.savings --data $(DATA) $(ARGS)

bench-answers: install ## what compression does to a running server's answers (PORT=, MODEL=chat model, DATA=, ARGS="--limit 40 --clients 4 --alone 10 --resume")
	PITH_API_KEY=$${PITH_API_KEY:-$$(cat var/demo-key)} exec $(BIN)/python -m benchmarks.answers --data $(DATA) \
		--url http://127.0.0.1:$(or $(PORT),8000) $(if $(MODEL),--model $(MODEL)) $(ARGS)

docs: ## build the pages into a site that works offline, var/site
	exec scripts/docs

wheel: install ## pith as a wheel, with the locks of its packages beside it: var/dist
	exec scripts/wheel

sbom: install ## what an installation consists of, with hashes, as CycloneDX: var/sbom-cpu.json (EXTRA=cpu or gpu)
	exec scripts/sbom $(EXTRA)

format: install ## rewrite the code as `make check` wants it
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format .

install: ## make .venv, or bring it up to date (EXTRA=cpu or gpu)
	exec scripts/install $(EXTRA)

clean: ## remove what make made; keeps var/, where the ledger is
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis pith.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
