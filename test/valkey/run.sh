#!/usr/bin/env bash
# Runs the tests of the remote store that need a Valkey with SET IFEQ: test/valkey/run.sh. Arguments are passed to go test.
# VALKEY_SERVER may name the valkey-server to use. Otherwise, if the system installs packages from an archive of Debian (or if
# VALKEY_MIRROR names one), the script downloads valkey-server and its libraries from Debian 13 into a temporary directory, which
# it removes at the end; it does not install them. If there is no valkey-server, it prints NOT CHECKED, and fails if
# VALKEY=required.
set -eu

cd "$(dirname "$(realpath "$0")")/../.."
oldest=8.1
mirror=${VALKEY_MIRROR:-}
dir=$(mktemp -d)
all=$dir
trap 'rm -rf "$all"' EXIT

missing() {
    echo "make test-valkey: NOT CHECKED: $* (VALKEY_SERVER names a valkey-server of $oldest or later)" >&2
    [ "${VALKEY:-}" != required ] || exit 1
    exit 0
}
. test/debian.sh

if [ -z "${VALKEY_SERVER:-}" ]; then
    fetch valkey-server valkey-tools "$oldest" trixie
    wrap valkey-server
    VALKEY_SERVER=$dir/valkey-server
fi
export VALKEY_SERVER
version=$("$VALKEY_SERVER" --version) || missing "$VALKEY_SERVER does not run on this system"
echo "testing with $version"
go test -pgo=off -count=1 -timeout 30m -tags valkey ./test/remote/... ./test/exactness "$@"

# SENTINEL FAILOVER ... COORDINATED is new in Valkey 9, which is in Debian's unstable distributions.
oldest=9.0
case $version in
*v=8.*)
    dir=$dir/newer
    mkdir "$dir"
    fetch valkey-server valkey-tools "$oldest" sid experimental
    wrap valkey-server
    VALKEY_SERVER=$dir/valkey-server
    version=$("$VALKEY_SERVER" --version) || missing "$VALKEY_SERVER does not run on this system"
    ;;
esac
echo "testing a coordinated failover with $version"
go test -pgo=off -count=1 -tags valkey,valkey9 ./test/exactness -run TestCoordinatedFailoverLosesNothing
