#!/usr/bin/env bash
# Compiles the pinned mdBook into .tools/mdbook if it is missing (crates.io; its lock file pins the dependencies).
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.5.4
if [ "$(.tools/mdbook/bin/mdbook --version 2>/dev/null)" != "mdbook v$version" ]; then
    cargo install mdbook --version "=$version" --locked --no-default-features --features search --root .tools/mdbook
fi
