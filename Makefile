# The commands of this repository. Each makes what it needs; nothing asks a question.

PYTHON ?= python3
SCRIPT := $(PYTHON) -m scripts

.PHONY: help demo test test-all chaos crash-test fuzz faults gpu-check bench-tracer bench-server compose-test lint format train-tiny prompts clean

help: ## say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-14s %s\n", $$1, $$2}'

demo: ## a healthy and a faulty SGLang under SpecScope (PORT=n, CHECK=1 to exit with the verdict)
	@$(SCRIPT).demo $(if $(PORT),--port $(PORT)) $(if $(filter-out 0,$(CHECK)),--check)

test: ## everything but the slow tests, from nothing (ARGS="..." goes to pytest)
	@$(SCRIPT).checks -- $(ARGS)

test-all: ## the slow tests as well, then the compose stack
	@$(SCRIPT).checks --slow -- $(ARGS)
	@$(MAKE) --no-print-directory compose-test

chaos: ## what must never harm an engine: a real one under every kind of trouble (ARGS="..." goes to pytest)
	@$(SCRIPT).checks --slow --only tests -- -m chaos tests/chaos $(ARGS)

crash-test: ## kill -9 the loaded server 100 times on each store; nothing acknowledged may be lost (ARGS="--kills 9 --seed 1")
	@$(SCRIPT).project_env server postgres dev
	@cd tests && ../.venv/bin/python -m crash $(ARGS)

fuzz: ## a million hostile exports and packed blobs, then sizes doubled (ARGS="--cases 10000 --seed 1")
	@$(SCRIPT).project_env server postgres dev fuzz
	@cd tests && ../.venv/bin/python -m fuzz $(ARGS)

faults: ## the fault zoo on real engines, with its confusion matrix: hours (ARGS="--kind patch --pair first --seeds 1")
	@$(SCRIPT).project_env server postgres dev
	@$(SCRIPT).sglang_env
	@PYTHONPATH=tests:tests/engines:tests/faults:tests/faults/blind .venv/bin/python tests/faults/__main__.py $(ARGS)

gpu-check: ## our kernels, ring and graph buffers on a CUDA device, 5 minutes; skipped where there is none (GPU_PYTHON=...)
	@$(SCRIPT).gpu_check

bench-tracer: ## what the tracer costs: engine thread, GIL, exporter, wire, throughput (leave the machine idle)
	@$(SCRIPT).project_env server postgres dev
	@$(SCRIPT).sglang_env
	@OMP_NUM_THREADS=1 .envs/sglang/bin/python benchmarks/tracer/hot_path.py
	@.venv/bin/python benchmarks/tracer/record_path.py
	@.venv/bin/python benchmarks/tracer/wire_size.py
	@.venv/bin/python benchmarks/tracer/paired.py

bench-server: ## speed of receiver, stores and queries, and the same traffic into Arize Phoenix (ARGS="--steps 100M")
	@$(SCRIPT).project_env server postgres dev
	@PYTHONPATH=tests .venv/bin/python -m benchmarks.server $(ARGS)

compose-test: ## docker-compose.yml for real, on a Docker daemon of its own (root)
	@$(SCRIPT).project_env server postgres dev
	@PYTHON=.venv/bin/python tests/compose/run.sh

lint: ## ruff and pyright
	@$(SCRIPT).checks --only lint

format: ## ruff's formatter and its safe repairs
	@$(SCRIPT).project_env server postgres dev
	@.venv/bin/ruff format
	@.venv/bin/ruff check --fix

train-tiny: ## train the tiny pair again, into build/tiny (ARGS="--steps 3" to try the scripts out)
	@$(SCRIPT).sglang_env
	@OMP_NUM_THREADS=1 .envs/sglang/bin/python models/tiny/train/run.py $(ARGS)

prompts: ## write models/tiny/prompts.json again
	@$(SCRIPT).sglang_env
	@OMP_NUM_THREADS=1 .envs/sglang/bin/python models/tiny/train/make_prompts.py $(ARGS)

clean: ## remove everything these commands made
	rm -rf .venv .envs .demo build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
