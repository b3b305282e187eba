#!/usr/bin/env bash
# Compares recorded replies of Redis 8.4 and later with those of a real redis-server of such a version: test/redis8/run.sh
# REDIS8_SERVER may name the redis-server to use. Otherwise, if the system installs packages from an archive of Debian (or if
# REDIS8_MIRROR names one), the script downloads redis-server and its libraries from Debian's unstable distributions into a
# temporary directory, which it removes at the end; it does not install them. If there is no redis-server, it prints NOT
# CHECKED, and fails if REDIS8=required.
set -eu

cd "$(dirname "$(realpath "$0")")/../.."
oldest=8.4
mirror=${REDIS8_MIRROR:-}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

missing() {
    echo "make test-redis8: NOT CHECKED: $* (REDIS8_SERVER names a redis-server of $oldest or later)" >&2
    [ "${REDIS8:-}" != required ] || exit 1
    exit 0
}

. test/debian.sh

if [ -z "${REDIS8_SERVER:-}" ]; then
    fetch redis-server redis-tools "$oldest" sid experimental
    wrap redis-server
    REDIS8_SERVER=$dir/redis-server
fi
export REDIS8_SERVER
version=$("$REDIS8_SERVER" --version) || missing "$REDIS8_SERVER does not run on this system"
echo "comparing with $version"
go test -pgo=off -count=1 -tags redis8 ./test/differential -run Redis8
# Redis 8.4 has SET IFEQ, as Valkey 8.1 has it.
VALKEY_SERVER=$REDIS8_SERVER go test -pgo=off -count=1 -tags valkey ./test/remote -run 'TestRequests|TestScripts|TestSingleKeys|TestMemoryIsFull|TestKeyspace'
