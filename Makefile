# `make run` and `make test` do all the set-up on a fresh Debian machine with Rust on it; `make
# help` lists the rest.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help run test check bench prepare setup setup-tests

# Everything cargo does is pinned by Cargo.lock.
CARGO := cargo
# More arguments, for example: make run ARGS="--listen 127.0.0.1:8081", make test ARGS=embedded
ARGS :=

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: setup ## Build and run the wallet with demo data, on a private PostgreSQL unless DATABASE_URL is set
	$(CARGO) build --release --locked
	exec target/release/hamyon serve --demo $(ARGS)

test: setup-tests ## Run every test, on a throw-away PostgreSQL unless DATABASE_URL is set
	$(CARGO) test --locked $(ARGS)

check: setup ## Format, lints, freshness of .sqlx, documentation: what must hold before a commit
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --all-targets --locked -- -D warnings
	.ci/sqlx check
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --document-private-items --locked

bench: setup ## Print the speed of the wallet as ratios against raw PostgreSQL
	$(CARGO) bench --locked --bench load -- $(ARGS)

prepare: setup ## Regenerate .sqlx after a query or a migration has changed
	.ci/sqlx write

setup:
	@.ci/setup

setup-tests:
	@.ci/setup tests
