# What CI runs is what a person runs. Every target sets up what it needs; a second time that takes a second.
SHELL := bash
VENV := $(or $(TILTYARD_VENV),.venv)
BIN := $(VENV)/bin
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo "sudo -E")
export OMP_WAIT_POLICY := PASSIVE
DEMO ?= examples/demo.toml
ARGS ?=

.PHONY: help setup python sandbox images tools promtool model demo seeds bench-bus bench-sandbox poison chaos sandbox-docker load
.PHONY: domains-check abuse soak-sandbox cluster test lint format clean compose-test
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{ printf "  make %-14s %s\n", $$1, $$2 }'

setup: python sandbox model ## virtual environment, nats-server, gVisor, sandbox image, model

python:
	@infra/setup/python.sh

sandbox: python
	@$(SUDO) infra/setup/runsc.sh > /dev/null
	@$(SUDO) infra/setup/tools.sh mkfs.erofs:erofs-utils || true
	@$(SUDO) $(BIN)/tiltyard sandbox images build python > /dev/null

images: sandbox ## the sandbox images of all shipped profiles (2 GB, several minutes)
	@$(SUDO) $(BIN)/tiltyard sandbox images build --all > /dev/null

tools:
	@$(SUDO) infra/setup/tools.sh bwrap:bubblewrap

promtool:
	@$(SUDO) infra/setup/promtool.sh > /dev/null

model: python
	@$(BIN)/tiltyard model -c $(DEMO) > /dev/null

demo: setup ## train the built-in model on the built-in tasks, on real parts; prints a report (about 6 minutes)
	@$(SUDO) $(BIN)/tiltyard up -c $(DEMO) --fresh --results results/demo.json $(ARGS)

seeds: setup ## does the demo's rise hold for three seeds? (about 15 minutes; DEMO=... for another configuration)
	@$(SUDO) $(BIN)/python loadtests/seeds.py $(DEMO) 0 1 2

bench-bus: python ## what the bus library costs: a table, and results/bench-bus.json (two minutes)
	@$(BIN)/python loadtests/bench_bus.py $(ARGS)

bench-sandbox: python sandbox ## what a sandbox costs, beside runc, bubblewrap and docker: a table, and results/bench-sandbox.json (five minutes)
	@$(SUDO) $(BIN)/python loadtests/bench_sandbox.py $(ARGS)

poison: python ## 1,000 poison messages of over 20 kinds among 10,000 good ones, and 1,000 replays (about 2 minutes)
	@PYTHONPATH=tests $(BIN)/python loadtests/poison.py

chaos: python ## kill services and the bus under 10,000 rollouts, then audit (three minutes; ARGS="--rollouts 300" for less)
	@$(BIN)/tiltyard model tiny > /dev/null
	@$(BIN)/python loadtests/chaos $(ARGS)

load: python ## what the whole system carries: every service on a simulated engine, a table, results/load.json and .html (ten minutes)
	@$(BIN)/tiltyard model tiny > /dev/null
	@$(BIN)/python loadtests/load $(ARGS)

abuse: python sandbox tools ## 32 kinds of abuse against the sandbox: a table, and results/abuse.json (about 6 minutes)
	@$(SUDO) env PYTHONPATH=tests $(BIN)/python loadtests/abuse.py $(ARGS)

soak-sandbox: python sandbox ## 2,000 sandbox sessions: flat memory and open files, nothing left (about 6 minutes)
	@$(SUDO) $(BIN)/python loadtests/soak_sandbox.py $(ARGS)

domains-check: python images ## the entry gate over all domains, cases, forgeries, rates: a table, and results/domains-check.json (15 minutes, cached)
	@$(SUDO) env PYTHONPATH=tests $(BIN)/python loadtests/domains_check.py $(ARGS)

test: python images tools promtool model ## all tests, on a real nats-server and real gVisor
	@$(BIN)/tiltyard model tiny > /dev/null
	@$(SUDO) $(BIN)/pytest $(ARGS)

sandbox-docker: python sandbox ## the sandbox suites over the Docker back-end, on a daemon of their own (two minutes)
	@$(SUDO) infra/setup/tools.sh dockerd:docker.io
	@$(SUDO) TILTYARD_TEST_BACKENDS=docker $(BIN)/pytest -o addopts="--import-mode=importlib -ra" tests/docker \
		$(addprefix tests/contract/test_sandbox_,contract.py limits.py files.py shell.py) $(ARGS)

compose-test: python sandbox ## compose.yaml on a real Docker engine: build, train, kill, scale, drain, audit; results/compose.json
	@$(SUDO) infra/setup/docker.sh
	@$(SUDO) env RESULTS=results/compose.json $(BIN)/pytest -o addopts="--import-mode=importlib -ra" tests/compose $(ARGS)

cluster: python ## three nats-servers, leaders killed and changed under load (two minutes)
	@$(BIN)/pytest -o addopts="--import-mode=importlib -ra" tests/cluster $(ARGS)

lint: python ## style, types, import contracts
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

format: python ## rewrite files in the project's style
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

clean: ## remove runs, results and caches of this checkout (not models and images)
	@rm -rf .tiltyard results .pytest_cache .mypy_cache .ruff_cache .hypothesis
