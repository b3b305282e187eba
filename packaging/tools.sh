#!/usr/bin/env bash
# Builds tools from their modules into bin/tools, once for each version: those of a release, or those named.
#     packaging/tools.sh [NAME...]
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
[ "$#" -gt 0 ] || set -- goreleaser syft
for name; do
    case $name in
    goreleaser) tool goreleaser github.com/goreleaser/goreleaser/v2 v2.12.7 ;;
    syft) tool syft github.com/anchore/syft/cmd/syft v1.40.0 ;;
    govulncheck) tool govulncheck golang.org/x/vuln/cmd/govulncheck v1.3.0 ;; # that of the Makefile
    helm) tool helm helm.sh/helm/v3/cmd/helm v3.20.0 ;;
    *) echo "packaging/tools.sh: what is $name?" >&2 && exit 1 ;;
    esac
done
