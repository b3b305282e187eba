#!/usr/bin/env bash
# Tests cellserver and redis-cell on the same keys of a redis-server: test/rediscell/run.sh. Arguments are passed to go test;
# -record records what the test of CI, which has no redis-cell, plays.
# REDIS_CELL may name the module to use, such as libredis_cell.so of a release. Otherwise, cargo fetches and builds it: see
# build.sh. Without either, it prints NOT CHECKED, and fails if REDISCELL=required.
set -eu

cd "$(dirname "$(realpath "$0")")/../.."

missing() {
    echo "make test-redis-cell: NOT CHECKED: $* (REDIS_CELL names a libredis_cell.so)" >&2
    [ "${REDISCELL:-}" != required ] || exit 1
    exit 0
}

. test/rediscell/build.sh
build_redis_cell
echo "testing with redis-cell $REDIS_CELL_VERSION"
go test -pgo=off -count=1 -tags rediscell ./test/rediscell "$@"
