#!/usr/bin/env bash
# Tests this version beside an older one on one store, and the way back to it:
#     test/upgrade/older.sh COMMIT     such as a tag
set -euo pipefail
cd "$(dirname "$0")/../.."
commit=${1:?test/upgrade/older.sh COMMIT}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone -q . "$work/source"
git -C "$work/source" checkout -q "$commit"
(cd "$work/source" && CGO_ENABLED=0 go build -o "$work/cellserver" ./cmd/cellserver)
OLDER=$work/cellserver go test -count=1 ./test/upgrade -run Older -v
