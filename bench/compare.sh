#!/usr/bin/env bash
# Compares cellserver with other limiters, and writes the results into docs/compare.md: bench/compare.sh [options of bench]
# NEWER_SERVER may name a newer redis-server or valkey-server, on which INCR and the scripts are measured, too.
# cargo builds the other limiters, redis-cell in bin/rediscell and throttlecrab in bin/compare, unless REDIS_CELL and
# THROTTLECRAB name them. If one cannot be built, the script says why and leaves it out. After these builds, the
# comparison takes up to 15 minutes on two quiet cores.
set -eu

cd "$(dirname "$(realpath "$0")")/.."
throttlecrab=0.4.40

missing() { # in a subshell
    echo "make compare: WITHOUT redis-cell: $*" >&2
    exit 1
}

. test/rediscell/build.sh
options=()
peers="redis_rate $(go list -m -f '{{.Version}}' github.com/go-redis/redis_rate/v10)"
if (build_redis_cell); then
    build_redis_cell
    options+=(--module "$REDIS_CELL")
    peers="redis-cell $REDIS_CELL_VERSION, $peers"
fi

if [ -n "${NEWER_SERVER:-}" ]; then
    options+=(--newer "$NEWER_SERVER")
fi
if [ -z "${THROTTLECRAB:-}" ]; then
    THROTTLECRAB=$PWD/bin/compare/bin/throttlecrab-server
    if [ ! -x "$THROTTLECRAB" ] && command -v cargo >/dev/null && command -v protoc >/dev/null; then
        mkdir -p bin/compare
        cargo install --quiet --locked --root bin/compare "throttlecrab-server@$throttlecrab" >bin/compare/log 2>&1 || :
    fi
fi
if version=$("$THROTTLECRAB" --version 2>/dev/null); then
    options+=(--throttlecrab "$THROTTLECRAB")
    peers="throttlecrab ${version##* }, $peers"
else
    echo "make compare: WITHOUT throttlecrab: building it needs cargo and protoc; bin/compare/log says what failed" >&2
fi
go run ./bench --publish --only '^compare-' --for 4s --peers "$peers" "${options[@]}" "$@"
