# Every command sets up what it needs, can be repeated, and leaves no process running.
# Built programs and downloads live outside the checkout, in ~/.cache/trainer-kai (TRAINER_KAI_CACHE).

SHELL := bash
PYTHON ?= python3
PY := .venv/bin/python
DOCKER ?= docker
PYTEST := $(PY) -m pytest --durations=20
# Bytecode is kept, whatever the caller's environment says: hundreds of processes import the same modules.
export PYTHONDONTWRITEBYTECODE :=
# What a run may take where the probe has its reference; a slower machine gets as much more as it is slower.
BUDGET = -p tests.support.time_budget --budget $(1) --budget-of "make $(2)"
# For two cores: unit tests use both, tests on the control plane mostly wait. These options are not in
# pyproject.toml, so that a single test runs in one process.
UNIT := tests -m "not soak" -n 2 --dist worksteal --junitxml=.reports/unit.xml
E2E := e2e -m "not soak and not serial" -n 4 --dist loadgroup --no-loadscope-reorder \
  --junitxml=.reports/e2e.xml $(call BUDGET,1200,e2e)
# The last run of `make test` has the budget of all: TESTS_BEGAN_AT is the beginning of the first one.
SERIAL := e2e -m "serial and not soak" --junitxml=.reports/serial.xml $(if $(TESTS_BEGAN_AT),\
  $(call BUDGET,1200,test) --budget-since $(TESTS_BEGAN_AT))

.DEFAULT_GOAL := help
.PHONY: setup try demo test unit e2e check format bench bench-chain soak soak-e2e fuzz mutants fixtures tables
.PHONY: unit-slow chain versions recording durations lock image-test image-release clean help

setup: .venv/ready ## make the virtual environment from the locked dependencies

.venv/ready: requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is required; name one: make PYTHON=python3.12 …" >&2; exit 1; }
	@[[ ! -L .venv ]] || \
	  { echo ".venv is a symbolic link to $$(readlink .venv), and setup would delete all packages there;" \
	  "remove the link first: rm .venv" >&2; exit 1; }
	@echo "installing the locked dependencies into .venv"
	@$(PYTHON) -m venv --clear .venv
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation --editable .
	@touch $@

try: .try/ready ## plan TrainJobs on a cluster in files: seconds, nothing else is needed
	@bash docs/try/tour.sh .try/bin/trainer-kai

.try/ready: requirements-image.lock docs/try/install.sh
	@bash docs/try/install.sh "$(PYTHON)"

demo: setup ## run TrainJobs on a real control plane on this machine; HOLD=1 keeps it
	$(PY) -m e2e.demo $(if $(HOLD),--hold)

recording: setup ## run the demo and write docs/demo.svg from it
	$(PY) -m e2e.demo --recording docs/demo.svg

test: chain ## all tests; the first run builds the real control plane before, which takes minutes
	@TESTS_BEGAN_AT=$$(date +%s) $(MAKE) --no-print-directory unit e2e

unit: setup ## the tests that need no cluster
	$(PYTEST) $(UNIT) $(call BUDGET,150,unit)

unit-slow: setup ## the same with Python made two to three times slower: no test may fail by that
	$(PYTEST) $(UNIT) -p tests.support.slow_machine

chain: setup ## build all programs that the tests run: the control plane, kube-scheduler, helm; once
	$(PY) -m e2e.cluster build

e2e: chain ## the tests on the real control plane
	$(PYTEST) $(E2E)
	$(PYTEST) $(SERIAL)

check: setup ## format, lint, types, dead code, import contracts; changes nothing
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) -m vulture
	.venv/bin/lint-imports

format: setup ## format all files
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

mutants: setup ## list code changes that no test notices; BASE=HEAD~1 or ROOM=scheduler/core, SAMPLE=200, SEED=1
	@nice $(PY) -m tests.mutants $(if $(BASE),--base $(BASE)) $(if $(ROOM),--room $(ROOM)) \
	  $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED))

soak: setup ## the unit tests with TIMES (10) times as much random input, from the seed SEED (0) on
	SOAK_TIMES=$(or $(TIMES),10) SOAK_SEED=$(or $(SEED),0) \
	  $(PYTEST) tests -n 2 --dist worksteal --timeout 3600

soak-e2e: chain ## random kills, crashes and TrainJobs at full size, for MINUTES (20), from the seed SEED (7) on
	$(PY) -m e2e.soak --minutes $(or $(MINUTES),20) --seed $(or $(SEED),7)

fuzz: setup ## send randomly damaged recordings of reviews to a real webhook for a minute
	$(PY) -m tests.webhook.fuzz --seconds 60

versions: setup ## run the demo on each supported version and write docs/versions.md; builds for half an hour, once
	$(PY) -m e2e.versions

bench: chain ## print figures, each with a lower bound of the same run
	$(PY) -m benchmarks

bench-chain: chain ## measure from created to bound on the real control plane, compared with kube-scheduler
	$(PY) -m benchmarks scheduling sharing scheduler_start

fixtures: chain ## record the JobSets that Trainer builds into tests/fixtures
	$(PY) -m e2e.upstream.record

tables: setup ## write the generated parts of docs and of the Helm charts, and the doctor's data about the manifests
	$(PY) -m tests.support.chart_templates
	$(PY) -m tests.architecture.readme_tables
	$(PY) -m tests.support.expected_installation

durations: setup ## write e2e/chain_seconds.csv from the report of the last `make e2e`
	$(PY) -m e2e.chain_seconds

image-test: setup ## build the image and run it, with docker, podman or buildah; DOCKER=buildah names one
	@$(if $(filter command environment,$(origin DOCKER)),DOCKER=$(DOCKER)) BASE_IMAGE="$(BASE_IMAGE)" \
	  $(PY) -m tests.packaging.image

image-release: ## build the image for publication: IMAGE=NAME:TAG BASE_IMAGE=python@sha256:DIGEST
	@[[ -n "$(IMAGE)" ]] || { echo "IMAGE is empty: set IMAGE=NAME:TAG" >&2; exit 1; }
	@[[ "$(BASE_IMAGE)" =~ @sha256:[0-9a-f]{64}$$ ]] || \
	  { echo "BASE_IMAGE is \"$(BASE_IMAGE)\": name it by its digest, python@sha256:…, because a tag can move;" \
	  "$(DOCKER) buildx imagetools inspect python:3.11-slim prints it" >&2; exit 1; }
	$(DOCKER) build --pull --build-arg BASE_IMAGE="$(BASE_IMAGE)" -t "$(IMAGE)" .

lock: setup ## lock the dependencies of pyproject.toml anew
	$(PY) -m tests.support.lock_dependencies

clean: ## remove what the commands created in the checkout
	rm -rf .venv .try .reports .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## print this list
	@sed -nE 's/^([-a-z0-9]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22
