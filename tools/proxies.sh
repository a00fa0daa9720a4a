#!/usr/bin/env bash
# Unpacks the Debian packages of nginx and HAProxy in .tools/proxies, for tests, if they are missing. They are not installed, because
# an installation starts two services. Libraries that the system lacks are unpacked beside them, in .tools/proxies/lib. The versions
# are those of the Debian release, as apt has no older ones.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=.tools/proxies/bin
lib=.tools/proxies/lib
programs=(nginx haproxy)

has_all() {
    for program in "${programs[@]}"; do
        [ -x "$bin/$program" ] || return 1
    done
}

if has_all; then
    exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "proxies: no apt-get; put ${programs[*]} into $bin (https://nginx.org/en/download.html, https://www.haproxy.org)" >&2
    exit 1
fi

echo "proxies: unpacking ${programs[*]} into $bin"
into=$(mktemp -d)
trap 'rm -rf "$into"' EXIT
# As root, apt fetches as the user _apt, which requires write access.
chmod 755 "$into"

# Names of the packages and of the libraries that are not installed. Without root: nothing is installed.
packages() {
    printf '%s\n' "${programs[@]}"
    apt-get -s -qq install --no-install-recommends "${programs[@]}" | awk '$1 == "Inst" { print $2 }'
}
fetch() {
    local names
    names=$(packages | sort -u) || return
    # shellcheck disable=SC2086 # one word for each package
    (cd "$into" && apt-get -qq -o APT::Sandbox::User="$(id -un)" download $names)
}
if ! fetch 2>/dev/null; then
    as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get -qq update
    fetch
fi
mkdir -p "$bin" "$lib"
for package in "$into"/*.deb; do
    dpkg-deb -x "$package" "$into"
done
find "$into/usr/lib" "$into/lib" -maxdepth 2 -name '*.so.*' -exec cp -a {} "$lib/" \; 2>/dev/null || true
for program in "${programs[@]}"; do
    cp "$into/usr/sbin/$program" "$bin/"
done
LD_LIBRARY_PATH=$lib "$bin/nginx" -v
LD_LIBRARY_PATH=$lib "$bin/haproxy" -v | head -1
