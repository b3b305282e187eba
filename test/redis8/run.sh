#!/usr/bin/env bash
# Compares recorded replies of Redis 8.4 and later with those of a real redis-server of such a version: test/redis8/run.sh
# REDIS8_SERVER may name the redis-server to use. Otherwise, if the system installs packages from an archive of Debian (or if
# REDIS8_MIRROR names one), the script downloads redis-server and its libraries from Debian's unstable distributions into a
# temporary directory, which it removes at the end; it does not install them. If there is no redis-server, it prints NOT
# CHECKED, and fails if REDIS8=required.
set -eu

cd "$(dirname "$(realpath "$0")")/../.."
oldest=8.4
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

missing() {
    echo "make test-redis8: NOT CHECKED: $* (REDIS8_SERVER names a redis-server of $oldest or later)" >&2
    [ "${REDIS8:-}" != required ] || exit 1
    exit 0
}

# archives prints the addresses of those archives of Debian from which the system installs packages.
archives() {
    if [ -n "${REDIS8_MIRROR:-}" ]; then
        echo "$REDIS8_MIRROR"
        return
    fi
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
        sed -n -e 's/^deb  *\(\[[^]]*\]  *\)\?\([^ ]*\/debian\)\/\{0,1\} .*/\2/p' -e 's/^URIs: *\([^ ]*\/debian\)\/\{0,1\} *$/\1/p' |
        sort -u
}

# apt runs a program of apt with a separate state, in which no package is installed.
apt() {
    local program=$1
    shift
    "$program" -q -o Dir::Etc::SourceList="$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$dir/lists" \
        -o Dir::State::Status="$dir/status" -o Dir::Cache="$dir/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none \
        -o Acquire::Retries=2 -o Acquire::http::Timeout=20 -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}

fetch() {
    local keys=/usr/share/keyrings/debian-archive-keyring.gpg version libraries
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial" "$dir/packages" "$dir/tree"
    touch "$dir/status"
    for address in $(archives); do
        echo "deb [signed-by=$keys] $address sid main"
        echo "deb [signed-by=$keys] $address experimental main"
    done >"$dir/sources.list"
    [ -s "$dir/sources.list" ] || missing "the system does not install packages from an archive of Debian; REDIS8_MIRROR may name one"
    [ -f "$keys" ] || missing "the keys of the archive are not installed ($keys)"
    apt apt-get update >"$dir/log" 2>&1 || missing "cannot reach the archive: $(tail -n 1 "$dir/log")"
    version=$(apt apt-cache madison redis-server | sed 's/^[^|]*| *\([^ |]*\).*/\1/' | sort -V | tail -n 1)
    [ -n "$version" ] && dpkg --compare-versions "${version#*:}" ge "$oldest" || missing "the archive has no redis-server of version $oldest or later${version:+, only $version}"
    libraries=$(apt apt-cache show "redis-tools=$version" | sed -n 's/^Depends: //p' | tr ',' '\n' | sed -n 's/^ *\(lib[^ ]*\).*/\1/p')
    libraries=$(apt apt-cache depends --recurse --important $libraries | sed -n 's/^\(lib[^ ]*\|zlib1g\)$/\1/p' | sort -u)
    (cd "$dir/packages" && apt apt-get download "redis-tools=$version" "redis-server=$version" $libraries) >"$dir/log" 2>&1 ||
        missing "cannot download the packages: $(tail -n 1 "$dir/log")"
    for package in "$dir"/packages/*.deb; do
        dpkg -x "$package" "$dir/tree"
    done
}

# wrap writes a script that runs the unpacked redis-server with its own loader and libraries, which are newer than those of
# the system.
wrap() {
    local loader libraries
    loader=$(find "$dir/tree" -name 'ld-linux*.so.*' | head -n 1)
    libraries=$(dirname "$(find "$dir/tree" -name 'libc.so.*' | head -n 1)")
    printf '#!/bin/sh\nexec %s --argv0 redis-server --library-path %s %s "$@"\n' \
        "$loader" "$libraries" "$(realpath "$dir/tree/usr/bin/redis-server")" >"$dir/redis-server"
    chmod +x "$dir/redis-server"
    REDIS8_SERVER=$dir/redis-server
}

if [ -z "${REDIS8_SERVER:-}" ]; then
    for tool in apt-get apt-cache dpkg; do
        command -v "$tool" >/dev/null || missing "$tool, which is needed to download a redis-server, is not installed"
    done
    fetch
    wrap
fi
export REDIS8_SERVER
version=$("$REDIS8_SERVER" --version) || missing "$REDIS8_SERVER does not run on this system"
echo "comparing with $version"
go test -count=1 -tags redis8 ./test/differential -run Redis8
