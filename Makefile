# The one entrance, for people and for CI alike. `make` alone lists the targets.

.DEFAULT_GOAL := help
export PATH := $(CURDIR)/.tools/bin:$(PATH)
.PHONY: help build demo test lint peers tools checkers bench fmt dist profiled

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: system ## Build the haplane binary (target/debug/haplane)
	cargo build --locked --bin haplane

demo: system ## Two HAProxy, two agents, four origins and traffic to drain; DEMO=once runs by itself
	@scripts/peers haproxy-2.8
	@echo "building haplane"
	@cargo build --locked --bin haplane --example demo
	@$${CARGO_TARGET_DIR:-target}/debug/examples/demo $(DEMO)

test: system peers tools checkers lint ## Everything that has to hold, with real HAProxy and real Consul
	cargo test --quiet --manifest-path fuzz/Cargo.toml
	@mkdir -p target/tmp
	TMPDIR=$(CURDIR)/target/tmp \
		cargo nextest run --locked -p haplane -p haplane-daemon --features cpu-profile,heap-profile --lib --test product profiles
	cargo nextest run --locked --workspace

lint: system ## Formatting and clippy, warnings are errors
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --quiet -- -D warnings

dist: system ## Build what is released into dist/, and try it: .deb, tar.gz, container, checksums
	@scripts/dist

profiled: system ## Build haplane with profiles (target/profiled/release/haplane)
	CARGO_PROFILE_RELEASE_DEBUG=limited \
		cargo build --locked --release --target-dir target/profiled --bin haplane --features cpu-profile,heap-profile

fmt: ## Format the code
	cargo fmt --all

peers: ## Fetch the real peers of the tests into .peers/
	@scripts/peers

tools: ## Get the test runner if it is missing
	@scripts/tools

checkers:
	@scripts/checkers

system:
	@scripts/system

bench: system peers ## Measure; prints figures, judges nothing
	@cargo build --locked --quiet --profile release-quick --bin haplane --example bench
	@target/release-quick/examples/bench
.PHONY: system
