SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo demo-yarn test check sim fuzz cluster proto bench wheel docs

# The dev profile builds sooner than release, and Cargo.toml has it optimise the parts that matter.
PROFILE ?= dev
SEEDS ?= 20000
SEED ?=
VERSION ?= 3.5.0
NODES ?= 3
ARGS ?=
SECONDS ?= 60
TARGETS ?=

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.* ## /  make \1\t/p' Makefile | expand -t 18
	@echo
	@echo "  make demo PROFILE=release    with the binary that ships"
	@echo "  make sim SEEDS=100000        more schedules; SEED=17 runs that one again"
	@echo "  make fuzz SECONDS=600 TARGETS=config    one target, for ten minutes"
	@echo "  make cluster VERSION=3.3.6 NODES=2 ARGS=--kerberos    ARGS=--help lists the rest"

demo: ## train a real MXNet job on this machine, set-up included
	@PROFILE=$(PROFILE) scripts/demo

demo-yarn: ## the same on a real Hadoop with three nodes, gone afterwards
	@PROFILE=$(PROFILE) VERSION=$(VERSION) scripts/demo-yarn

test: ## everything that must hold; what the CI runs
	@scripts/steps test

check: ## the quick part of it: format, lints, core and unit tests
	@scripts/steps check

sim: ## simulate the core under many schedules of faults
	@scripts/tools
	$(if $(SEED),SEED=$(SEED),SEEDS=$(SEEDS)) cargo test -p ydl-core --release --test simulation -- --nocapture

fuzz: ## throw bytes at everything that reads foreign ones
	@set -e; for run in crates/*/fuzz/run; do $$run $(SECONDS) $(TARGETS); done

proto: ## make the Rust code of the messages in crates/yarn-native/proto
	@scripts/tools
	cargo run --quiet -p yarn-native-proto-gen

cluster: ## a real Hadoop on this machine, until Ctrl-C
	@scripts/tools
	@cargo run --quiet -p testbed -- up --version $(VERSION) --nodes $(NODES) $(ARGS)

wheel: ## the Python package with the binary in it, for any Linux with glibc 2.17
	@scripts/tools
	@scripts/wheel

bench: ## measure, and say how it was measured
	@scripts/tools
	@bench/run

docs: ## the documentation as a book, below target/book
	@scripts/check-docs
	@scripts/mdbook build docs
