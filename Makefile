SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo demo-yarn test check sim fuzz cluster proto bench wheel docs

# The dev profile builds faster than release. Cargo.toml optimises the hot dependencies in it.
PROFILE ?= dev
SEEDS ?= 20000
SEED ?=
VERSION ?= 3.5.0
NODES ?= 3
ARGS ?=
SECONDS ?= 60
TARGETS ?=

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.* ## /  make \1\t/p' Makefile | expand -t 18
	@echo
	@echo "  make demo PROFILE=release    with the release binary"
	@echo "  make sim SEEDS=100000        more schedules; SEED=17 repeats one"
	@echo "  make fuzz SECONDS=600 TARGETS=config    one target, for ten minutes"
	@echo "  make cluster VERSION=3.3.6 NODES=2 ARGS=--kerberos    ARGS=--help lists the rest"

demo: ## train an MXNet job on this machine, set-up included
	@PROFILE=$(PROFILE) scripts/demo

demo-yarn: ## the same on a real Hadoop with three nodes, removed afterwards
	@PROFILE=$(PROFILE) VERSION=$(VERSION) scripts/demo-yarn

test: ## run all tests, as CI does
	@scripts/steps test

check: ## run the quick checks: format, lints, core and unit tests
	@scripts/steps check

sim: ## simulate the core under many fault schedules
	@scripts/check-tools
	$(if $(SEED),SEED=$(SEED),SEEDS=$(SEEDS)) cargo test -p ydl-core --release --test simulation -- --nocapture

fuzz: ## fuzz everything that reads input from outside
	@set -e; for run in crates/*/fuzz/run; do $$run $(SECONDS) $(TARGETS); done

proto: ## generate the Rust code of crates/yarn-native/proto
	@scripts/check-tools
	cargo run --quiet -p yarn-native-proto-gen

cluster: ## start a real Hadoop on this machine, until Ctrl-C
	@scripts/check-tools
	@cargo run --quiet -p testbed -- up --version $(VERSION) --nodes $(NODES) $(ARGS)

wheel: ## build the Python package with the binary, for any Linux with glibc 2.17
	@scripts/check-tools
	@scripts/wheel

bench: ## measure the figures of the documentation
	@scripts/check-tools
	@bench/run

docs: ## build the documentation in target/book
	@scripts/check-docs
	@scripts/mdbook build docs
