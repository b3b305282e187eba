#!/usr/bin/env bash
# Builds the packages of the clients into a directory: clients/build.sh directory version [go] [python] [node]
# It needs python3; PYTHON names one that has setuptools, so that pip need not fetch it.
set -eu

out=$(realpath -m "${1:?usage: $0 directory version [go] [python] [node]}")
version=${2:?usage: $0 directory version [go] [python] [node]}
here=$(dirname "$(realpath "$0")")
shift 2
[ "$#" -gt 0 ] || set -- go python node
mkdir -p "$out"

# A directory that the go command can use as a proxy: GOPROXY=file://directory/go
build_go() {
    local module path at client
    client=$(sed -n 's/^module //p' "$here/go/go.mod")
    for module in "$here/go" "$here/go/adapters"; do
        path=$(sed -n 's/^module //p' "$module/go.mod")
        at=$out/go/$path/@v
        mkdir -p "$at"
        sed -E "s|($client) v[0-9.]+\$|\1 v$version|" "$module/go.mod" >"$at/v$version.mod"
        printf '{"Version":"v%s"}' "$version" >"$at/v$version.info"
        echo "v$version" >"$at/list"
        python3 - "$at/v$version" "$path@v$version" "$module" <<'EOF'
import pathlib, sys, zipfile
name, prefix, source = sys.argv[1:]
source = pathlib.Path(source)
others = [m.parent for m in source.glob("*/go.mod")]  # other modules
with zipfile.ZipFile(name + ".zip", "w", zipfile.ZIP_DEFLATED) as z:
    for f in sorted(source.rglob("*")):
        if f.is_file() and f.name != "go.mod" and not any(f.is_relative_to(o) for o in others):
            z.write(f, f"{prefix}/{f.relative_to(source)}")
    z.write(name + ".mod", prefix + "/go.mod")
EOF
    done
}

build_python() {
    local source=$out/python-source
    rm -rf "$source"
    cp -r "$here/python" "$source"
    sed -i "s/^version = .*/version = \"$version\"/" "$source/pyproject.toml"
    "${PYTHON:-python3}" -m pip wheel --quiet --disable-pip-version-check --no-deps ${PYTHON:+--no-build-isolation} \
        --wheel-dir "$out" "$source"
    rm -rf "$source"
}

# NODE_MODULES has typescript, and the libraries with stores.
build_node() {
    local source=$out/node-source
    rm -rf "$source"
    cp -r "$here/node" "$source"
    ln -s "${NODE_MODULES:?NODE_MODULES names no directory: clients/test.sh installs bin/clients/own_node/node_modules}" "$source/node_modules"
    sed -i "s/\"version\": .*/\"version\": \"$version\",/" "$source/package.json"
    (cd "$source" && node_modules/.bin/tsc -p . && rm node_modules && npm pack --silent --pack-destination "$out" >/dev/null)
    rm -rf "$source"
}

for language; do "build_$language"; done
