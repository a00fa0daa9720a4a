#!/usr/bin/env bash
# Installs the pinned OpenID provider of the tests into .tools/oidc-provider if it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

if cmp -s tools/oidc-provider.txt .tools/oidc-provider/oidc-provider.txt; then
    exit 0
fi
echo "oidc-provider: installing into .tools/oidc-provider"
rm -rf .tools/oidc-provider
python3 -m pip install -q --no-deps --require-hashes --only-binary=:all: --disable-pip-version-check --target .tools/oidc-provider -r tools/oidc-provider.txt
cp tools/oidc-provider.txt .tools/oidc-provider/
