#!/usr/bin/env bash
# Unpacks the Debian packages of Prometheus and VictoriaMetrics in .tools/monitoring/bin, for tests, if they are missing. They are not
# installed, because an installation starts two services and creates two users.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=.tools/monitoring/bin
programs=(prometheus promtool victoria-metrics)

has_all() {
    for program in "${programs[@]}"; do
        [ -x "$bin/$program" ] || return 1
    done
}

if has_all; then
    exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "monitoring: no apt-get; put ${programs[*]} into $bin (https://prometheus.io/download, https://github.com/VictoriaMetrics/VictoriaMetrics/releases)" >&2
    exit 1
fi

echo "monitoring: unpacking ${programs[*]} into $bin"
into=$(mktemp -d)
trap 'rm -rf "$into"' EXIT
# As root, apt fetches as the user _apt, which requires write access.
chmod 755 "$into"
fetch() { (cd "$into" && apt-get -qq -o APT::Sandbox::User="$(id -un)" download prometheus victoria-metrics); }
if ! fetch 2>/dev/null; then
    as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get -qq update
    fetch
fi
mkdir -p "$bin"
for package in "$into"/*.deb; do
    dpkg-deb -x "$package" "$into"
done
for program in "${programs[@]}"; do
    cp "$into/usr/bin/$program" "$bin/"
done
"$bin/prometheus" --version 2>&1 | head -1
"$bin/victoria-metrics" -version
