#!/usr/bin/env bash
# Installs the pinned generator of TypeScript clients into .tools/openapi-typescript if it is missing (npm, by hash).
set -euo pipefail
cd "$(dirname "$0")/.."

into=.tools/openapi-typescript
if ! cmp -s tools/openapi-typescript/package-lock.json "$into/package-lock.json" || [ ! -d "$into/node_modules" ]; then
    echo "openapi-typescript: installing into $into"
    rm -rf "$into"
    mkdir -p "$into"
    cp tools/openapi-typescript/package.json tools/openapi-typescript/package-lock.json "$into/"
    (cd "$into" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
fi
