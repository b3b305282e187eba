#!/usr/bin/env bash
# Downloads a valkey-server with SET IFEQ from Debian 13 into a directory, without installing it: test/valkey/fetch.sh directory.
# The program is then directory/valkey-server. This needs a system that installs packages from an archive of Debian, or
# VALKEY_MIRROR, which names one. Otherwise, it says why there is none, and fails.
set -eu

dir=$(realpath "$1")
cd "$(dirname "$(realpath "$0")")/../.."
mirror=${VALKEY_MIRROR:-}

missing() {
    echo "no valkey-server: $* (VALKEY_SERVER names a valkey-server of 8.1 or later)" >&2
    exit 1
}
. test/debian.sh

fetch valkey-server valkey-tools 8.1 trixie
wrap valkey-server
