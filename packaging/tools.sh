#!/usr/bin/env bash
# Builds the tools of a release from their modules into bin/tools, once for each version.
set -euo pipefail
cd "$(dirname "$0")/.."
top=$PWD
mkdir -p bin/tools

tool() { # name module version
    if [ ! -x "bin/tools/$1-$3" ]; then
        echo "building $1 $3: the first time takes some minutes"
        GOFLAGS= GOBIN="$top/bin/tools/new" go install "$2@$3"
        mv "bin/tools/new/$1" "bin/tools/$1-$3"
    fi
    ln -sf "$1-$3" "bin/tools/$1"
}
tool goreleaser github.com/goreleaser/goreleaser/v2 v2.12.7
tool syft github.com/anchore/syft/cmd/syft v1.40.0
