#!/usr/bin/env bash
# Tests cellserver and redis-cell on the same keys of a redis-server: test/rediscell/run.sh. Arguments are passed to go test;
# -record records what the test of CI, which has no redis-cell, plays.
# REDIS_CELL may name the module to use, such as libredis_cell.so of a release. Otherwise, cargo fetches and builds the version
# that Cargo.toml names, which is the last one that was published as a crate, in bin/rediscell. Without either, it prints NOT
# CHECKED, and fails if REDISCELL=required.
set -eu

here=$(dirname "$(realpath "$0")")
cd "$here/../.."
dir=$PWD/bin/rediscell

missing() {
    echo "make test-redis-cell: NOT CHECKED: $* (REDIS_CELL names a libredis_cell.so)" >&2
    [ "${REDISCELL:-}" != required ] || exit 1
    exit 0
}

# build builds the crate by itself: as a dependency, it would need Rust's own library to be loaded with it.
build() {
    local program manifest
    for program in cargo cc; do
        command -v "$program" >/dev/null || missing "$program is not installed"
    done
    rm -rf "$dir" && mkdir -p "$dir" && cp -r "$here/Cargo.toml" "$here/src" "$dir"
    manifest=$(cd "$dir" && cargo metadata --quiet --format-version 1 2>"$dir/log" | tr ',' '\n' |
        sed -n 's/^"manifest_path":"\(.*\/redis-cell-[^"]*\)"$/\1/p')
    [ -n "$manifest" ] || missing "cargo cannot fetch redis-cell: $(tail -n 1 "$dir/log")"
    cp -r "$(dirname "$manifest")" "$dir/source"
    (cd "$dir/source" && cargo build --quiet --release) >"$dir/log" 2>&1 || missing "cargo cannot build redis-cell: $(tail -n 1 "$dir/log")"
}

if [ -z "${REDIS_CELL:-}" ]; then
    REDIS_CELL=$dir/source/target/release/libredis_cell.so
    [ "$REDIS_CELL" -nt "$here/Cargo.toml" ] || build
    REDIS_CELL_VERSION=$(sed -n 's/^redis-cell = "=\(.*\)"/\1/p' "$here/Cargo.toml")
fi
export REDIS_CELL REDIS_CELL_VERSION=${REDIS_CELL_VERSION:-unknown}
echo "testing with redis-cell $REDIS_CELL_VERSION"
go test -count=1 -tags rediscell ./test/rediscell "$@"
