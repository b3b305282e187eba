#!/usr/bin/env bash
# Asks a redis-server of version 8.4 or later what is recorded as its answers: test/redis8/run.sh
# It is REDIS8_SERVER, if that names one. Else it is fetched from where the system itself installs from, if that is Debian's archive
# (or from the one that REDIS8_MIRROR names): from its unstable distributions, with the libraries that it needs, into a temporary
# place. Nothing is installed, and nothing stays. Where there is none, that is said, and is a failure if REDIS8=required.
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

# archives lists the addresses of Debian's archive among what the system installs from.
archives() {
    if [ -n "${REDIS8_MIRROR:-}" ]; then
        echo "$REDIS8_MIRROR"
        return
    fi
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
        sed -n -e 's/^deb  *\(\[[^]]*\]  *\)\?\([^ ]*\/debian\)\/\{0,1\} .*/\2/p' -e 's/^URIs: *\([^ ]*\/debian\)\/\{0,1\} *$/\1/p' |
        sort -u
}

# apt has a state of its own, in which nothing is installed.
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
    [ -s "$dir/sources.list" ] || missing "the system does not install from Debian's archive; REDIS8_MIRROR names one"
    [ -f "$keys" ] || missing "the archive's keys are not installed ($keys)"
    apt apt-get update >"$dir/log" 2>&1 || missing "the archive cannot be reached: $(tail -n 1 "$dir/log")"
    version=$(apt apt-cache madison redis-server | sed 's/^[^|]*| *\([^ |]*\).*/\1/' | sort -V | tail -n 1)
    [ -n "$version" ] && dpkg --compare-versions "${version#*:}" ge "$oldest" || missing "the archive has redis-server ${version:-of no version}"
    libraries=$(apt apt-cache show "redis-tools=$version" | sed -n 's/^Depends: //p' | tr ',' '\n' | sed -n 's/^ *\(lib[^ ]*\).*/\1/p')
    libraries=$(apt apt-cache depends --recurse --important $libraries | sed -n 's/^\(lib[^ ]*\|zlib1g\)$/\1/p' | sort -u)
    (cd "$dir/packages" && apt apt-get download "redis-tools=$version" "redis-server=$version" $libraries) >"$dir/log" 2>&1 ||
        missing "the packages cannot be fetched: $(tail -n 1 "$dir/log")"
    for package in "$dir"/packages/*.deb; do
        dpkg -x "$package" "$dir/tree"
    done
}

# wrap makes what was unpacked run with its own loader and libraries, which are newer than the system's.
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
        command -v "$tool" >/dev/null || missing "there is no $tool to fetch a redis-server with"
    done
    fetch
    wrap
fi
export REDIS8_SERVER
said=$("$REDIS8_SERVER" --version) || missing "what was fetched does not run here"
echo "asking $said"
go test -count=1 -tags redis8 ./test/differential -run Redis8
