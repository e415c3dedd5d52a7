# The whole project from a fresh checkout: `make demo`, `make test`. Nothing here asks questions.
PYTHON ?= python3
BIN := .venv/bin
.DEFAULT_GOAL := help
.PHONY: help venv engine images images-lab demo test test-unit test-e2e lint clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

venv: ## .venv with hvdcompose and its tools
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not installed: apt install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) tools/venv.py

engine: venv ## a Docker engine and Compose, installed and started where there is none
	@$(BIN)/python tools/engine.py

images: engine ## the trainer's image and the virtual hosts', built when something changed
	@$(BIN)/python tools/images.py trainer
	@$(BIN)/hvdcompose lab image

images-lab: images ## and those of the virtual hosts that only tests use: a rootless engine, an old one
	@$(BIN)/hvdcompose lab image --rootless --old

demo: images ## four virtual hosts on this machine train together
	@$(BIN)/python tools/demo.py

lint: venv ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy tools templates/hvd
	@$(BIN)/mypy benchmarks

test-unit: venv ## the tests that need no engine
	@$(BIN)/pytest -m "not engine"

test-e2e: images-lab ## the tests that need one
	@$(BIN)/pytest -m engine

test: lint images-lab ## everything: lint, unit tests, end-to-end tests in a lab of their own
	@HVD_SKIP_NONE=1 $(BIN)/pytest

clean: ## the lab, our images, .venv and caches; the engine stops if it was started from here
	@if [ -x $(BIN)/hvdcompose ]; then $(BIN)/hvdcompose lab down --images || true; fi
	@# by name and label: hvd-trainer:cuda may be the user's own, and what is made FROM ours inherits the label
	@for only in "reference=hvd-trainer --filter reference=hvd-trainer-base --filter label=hvdcompose.digest" \
	    reference=hvdcompose-lab-base reference=hvd-bench:stub; do \
	  docker image ls --format '{{.Repository}}:{{.Tag}}' --filter $$only; \
	done 2>/dev/null | xargs -r docker image rm --force || true
	@docker image ls --quiet --filter dangling=true --filter label=hvdcompose.digest 2>/dev/null \
	  | xargs -r docker image rm || true
	@if command -v $(PYTHON) >/dev/null; then $(PYTHON) tools/engine.py stop; fi
	@rm -rf .venv .cache dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
