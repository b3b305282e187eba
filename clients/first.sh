#!/usr/bin/env bash
# Measures the time to the first decision: clients/first.sh path/to/cellserver [go] [python] [node], after clients/test.sh.
# For each language, it installs the package from its file into an empty folder, with empty caches, so that everything else
# comes from the registries; and runs the program with which README.md begins. It fails if there is no decision.
set -eu

binary=$(realpath "${1:?usage: $0 path/to/cellserver [go] [python] [node]}")
here=$(dirname "$(realpath "$0")")
installed=$(realpath "$here/../bin/clients${CLIENTS:+-$CLIENTS}")
version=1.0.0
dir=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$dir"' EXIT
shift
[ "$#" -gt 0 ] || set -- go python node
[ -d "$installed/own_node/node_modules/typescript" ] || { echo "run clients/test.sh first" >&2; exit 1; }
NODE_MODULES=$installed/own_node/node_modules PYTHON=$installed/own_python/bin/python "$here/build.sh" "$dir" "$version" "$@"

. "$here/server.sh"
serve "$binary" "$dir"

# readme prints the program with which a client's README.md begins, with the port of the server and a key of its own.
readme() { # language
    awk '/^```/ { if (inside) exit; inside = 1; next } inside' "$here/$1/README.md" | sed "s/6379/$port/; s/mail:42/mail:$1/"
}

# What the program for Go needs around it, as in go/example_test.go.
first_go() {
    local module
    module=$(sed -n 's/^module //p' "$here/go/go.mod")
    {
        printf 'package main\n\nimport (\n\t"context"\n\t"fmt"\n\t"time"\n\n'
        printf '\tcellserver "%s"\n\t"github.com/redis/go-redis/v9"\n)\n\n' "$module"
        printf 'func main() {\n\tctx := context.Background()\n%s\n}\n' "$(readme go)"
    } >main.go
    GOPROXY=file://$dir/go,$(go env GOPROXY)
    export GOPROXY GONOSUMDB=$module GOMODCACHE=$PWD/modules GOCACHE=$PWD/builds GOFLAGS=-modcacherw
    go mod init first && go get "$module@v$version" && go run . >decision
}

first_python() {
    readme python >first.py
    python3 -m venv . && bin/pip install --disable-pip-version-check --no-cache-dir "$dir"/*.whl && bin/python first.py >decision
}

# The last line lets the program end.
first_node() {
    { readme node && echo 'client.destroy();'; } >first.mjs
    npm install --no-audit --no-fund --cache "$PWD/cache" "$dir"/*.tgz redis && node first.mjs >decision
}

TIMEFORMAT='%R s after the installation began (processors: %U s)'
for language; do
    mkdir "$dir/first_$language"
    took=$({ time { cd "$dir/first_$language" && "first_$language" && grep -iqx 'true 15' decision; } >"$dir/first.log" 2>&1; } 2>&1) || {
        echo "FAILED: no first decision in $language: $(cat "$dir/first.log")" >&2
        exit 1
    }
    echo "ok the first decision in $language, $took"
done
