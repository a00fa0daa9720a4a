#!/usr/bin/env bash
# Installs missing system packages for build and tests.
#
# libmdbx requires a C compiler; bindgen requires libclang and its headers (stddef.h). Tests use npm (AssemblyScript example),
# Chromium (web UI), PostgreSQL, PgBouncer, MariaDB and Python (effects), pip (NATS server, tools/nats.sh) and curl (runbooks).
# Exit code 1 with the command to run if a package is missing and cannot be installed.
set -euo pipefail

# Search path of bindgen; LIBCLANG_PATH overrides it.
has_libclang() {
    if [ -n "${LIBCLANG_PATH:-}" ]; then
        compgen -G "$LIBCLANG_PATH/libclang*.so*" >/dev/null || [ -f "$LIBCLANG_PATH" ]
        return
    fi
    compgen -G '/usr/lib/llvm*/lib/libclang*.so*' >/dev/null &&
        compgen -G '/usr/lib/llvm*/lib/clang/*/include/stddef.h' >/dev/null
}

# Debian does not add the server to PATH.
has_postgres() {
    command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null
}

# /usr/sbin is not in the PATH of a user.
has_pgbouncer() {
    command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ]
}

has_browser() {
    command -v chromium-headless-shell || command -v chromium || command -v google-chrome
}

missing_packages() {
    command -v cc >/dev/null || echo gcc libc6-dev
    command -v make >/dev/null || echo make
    command -v pkg-config >/dev/null || echo pkg-config
    has_libclang || echo libclang-dev
    has_browser >/dev/null || echo chromium-headless-shell
    command -v curl >/dev/null || echo curl
    command -v npm >/dev/null || echo nodejs npm
    has_postgres || echo postgresql
    has_pgbouncer || echo pgbouncer
    { command -v mariadb-install-db && command -v my_print_defaults; } >/dev/null || echo mariadb-server-core mariadb-client-core
    command -v python3 >/dev/null || echo python3
    python3 -m pip --version >/dev/null 2>&1 || echo python3-pip
}

fail() {
    echo "setup: $1" >&2
    exit 1
}

command -v cargo >/dev/null || fail "cargo is missing; install Rust 1.95 or newer from https://rustup.rs"

mapfile -t missing < <(missing_packages | tr ' ' '\n')
[ "${#missing[@]}" -gt 0 ] || exit 0

by_hand="install them and try again: apt-get install ${missing[*]} (package names of Debian)"
command -v apt-get >/dev/null || fail "missing: ${missing[*]}; $by_hand"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "missing: ${missing[*]}; neither root nor sudo; $by_hand"
    as_root=(sudo)
fi

echo "setup: installing ${missing[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
"${apt[@]}" update || echo "setup: apt-get update failed, using the existing package lists" >&2
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null || fail "apt-get failed; $by_hand"

mapfile -t still < <(missing_packages | tr ' ' '\n')
[ "${#still[@]}" -eq 0 ] || fail "still missing after the installation: ${still[*]}"
