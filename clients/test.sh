#!/usr/bin/env bash
# Tests the clients with a real server: clients/test.sh path/to/cellserver [go] [python] [node]
# Each client is built as a package, and the tests use the installed package. Frameworks and Redis clients are installed
# once into bin/clients, in the versions that the tests name; CLIENTS=newest installs the newest ones.
set -eu

CELLSERVER=$(realpath "${1:?usage: $0 path/to/cellserver [go] [python] [node]}")
export CELLSERVER
here=$(dirname "$(realpath "$0")")
installed=$here/../bin/clients${CLIENTS:+-$CLIENTS}
mkdir -p "$installed"
installed=$(realpath "$installed")
version=1.0.0
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
shift
[ "$#" -gt 0 ] || set -- go python node

# FAULTS_PROXY breaks connections and servers; FAULTS is the number of calls that each client makes meanwhile.
FAULTS_PROXY=$dir/faults
export FAULTS_PROXY
(cd "$here/.." && go build -buildvcs=false -o "$FAULTS_PROXY" ./test/proxy/faults)

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# once runs a function in a new directory, unless it has run there already with the same content of the file.
once() { # directory, file, function
    [ -z "${CLIENTS:-}" ] && [ -e "$1/done" ] && diff -q "$1/done" "$2" >/dev/null || {
        rm -rf "$1"
        mkdir -p "$1"
        (cd "$1" && "$3") >"$1.log" 2>&1 || fail "$3: $(cat "$1.log")"
        cp "$2" "$1/done"
    }
}

# unpinned prints a file of requirements; with CLIENTS=newest, without the versions of the packages.
unpinned() { sed "${CLIENTS:+s/==.*//}" "$1"; }

test_go() {
    local module
    module=$(sed -n 's/^module //p' "$here/go/go.mod")
    local source=$here/go directory
    if [ -n "${CLIENTS:-}" ]; then # -mod=mod, because the client, which is first, may need more than the adapters name
        cp -r "$here" "$dir/newest" && source=$dir/newest/go
        for directory in "$source" "$source/adapters"; do
            (
                cd "$directory"
                set -o pipefail
                direct='{{if not (or .Main .Indirect .Replace)}}{{.Path}}@latest{{end}}'
                go list -mod=mod -m -f "$direct" all | xargs go get && go mod tidy
            ) >"$dir/log" 2>&1 || fail "go get: $(cat "$dir/log")"
        done
    fi
    export MIGRATE=$here/../docs/migrate.md
    (cd "$source" && go test -count=1 -timeout 10m ./...)
    (cd "$source/adapters" && go test -count=1 -timeout 10m .)
    "$here/build.sh" "$dir" "$version" go
    mkdir "$dir/program"
    cat "$here/go/go.sum" "$here/go/adapters/go.sum" >"$dir/program/go.sum"
    cat >"$dir/program/main.go" <<EOF
package main

import (
	"context"
	"fmt"

	cellserver "$module"
	"$module/adapters/throttled"
	"github.com/redis/go-redis/v9"
)

func main() {
	limiter := cellserver.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), cellserver.Options{})
	d, err := limiter.Take(context.Background(), "api", "user", 1)
	limited, _, _ := throttled.New(limiter, cellserver.Rate{}).RateLimitCtx(context.Background(), "user", 1)
	fmt.Println(d.Allowed, err, limited)
}
EOF
    (
        cd "$dir/program"
        GOPROXY=file://$dir/go,file://$(go env GOMODCACHE)/cache/download
        export GOFLAGS=-mod=mod GONOSUMDB=example.com GOMODCACHE=$dir/cache GOPROXY
        go mod init program 2>/dev/null
        go mod edit -require "$module@v$version" -require "$module/adapters@v$version"
        [ "$(go run . 2>"$dir/log")" = 'true <nil> false' ]
    ) || fail "the modules cannot be used from their zips: $(cat "$dir/log")"
    echo "ok the modules, from their zips"
}

# With --upgrade, because a virtual environment brings an older setuptools.
install_python() {
    python3 -m venv . && unpinned "$here/python/tests/requirements.txt" >requirements.txt &&
        bin/pip install --upgrade --quiet --disable-pip-version-check --requirement requirements.txt
}
install_python_oldest() {
    python3 -m venv . && sed 's/^redis==.*/redis==5.0.0/' "$here/python/tests/requirements.txt" >requirements.txt &&
        bin/pip install --quiet --disable-pip-version-check --requirement requirements.txt
}
test_python() {
    local which
    for which in python python_oldest; do
        once "$installed/own_$which" "$here/python/tests/requirements.txt" "install_$which"
        PYTHON=$installed/own_$which/bin/python
        export PYTHON
        [ -e "$dir/cellserver-$version-py3-none-any.whl" ] || "$here/build.sh" "$dir" "$version" python
        "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$dir"/*.whl
        (cd "$here/python/tests" && "$PYTHON" -m pytest -q -p no:cacheprovider .)
    done
    (cd "$here/python" && "$installed/own_python/bin/mypy" --cache-dir "$installed/mypy" cellserver)
}

install_node() {
    sed -E "${CLIENTS:+s/: \"[0-9][^\"]*\"/: \"latest\"/; s/(npm:[a-z]*@[0-9]*)[^\"]*/\\1/}" "$here/node/tests/package.json" >package.json &&
        npm install --loglevel error --no-audit --no-fund --no-package-lock
}
# install_newer_node installs Node.js itself.
install_newer_node() { npm install --loglevel error --no-audit --no-fund --no-package-lock node@20; }
test_node() {
    local own=$installed/own_node path=$PATH
    once "$own" "$here/node/tests/package.json" install_node
    # Debian 12 and Ubuntu 24.04 have Node.js 18, which the client does not support.
    node --test-force-exit --version >/dev/null 2>&1 || {
        once "$installed/node" "$here/node/package.json" install_newer_node
        path=$installed/node/node_modules/.bin:$PATH
    }
    NODE_MODULES=$own/node_modules "$here/build.sh" "$dir" "$version" node
    rm -rf "$own/node_modules/cellserver" "$own/tests"
    mkdir "$own/node_modules/cellserver"
    tar xzf "$dir/cellserver-$version.tgz" -C "$own/node_modules/cellserver" --strip-components 1
    cp -r "$here/node/tests" "$own/tests"
    (
        cd "$own/tests"
        PATH=$path
        export CONTRACT=$here/contract README=$here/node/README.md MIGRATE=$here/../docs/migrate.md
        for file in *.test.mjs; do
            node --test --test-force-exit --test-reporter=spec "$file" >"$dir/told" || { cat "$dir/told" >&2; fail "$file"; }
            echo "ok $file"
        done
    )
}

for language; do "test_$language"; done
