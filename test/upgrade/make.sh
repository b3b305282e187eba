#!/usr/bin/env bash
# Makes the fixture of a version in test/upgrade/testdata: what this version leaves behind on a disk and in a store, with
# its configuration. The test opens all fixtures with today's version, and fails if a tag has none. Run it once for each
# release, after its tag, and before it when a form has changed, with a number after the version (1.0.0-2 HEAD):
#     test/upgrade/make.sh VERSION [COMMIT]     such as 1.0.0; COMMIT is by default the tag v1.0.0
# BINARY=path takes a binary of this version in place of building one. It needs redis-server, for the store.
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD/test/upgrade
version=${1:?test/upgrade/make.sh VERSION [COMMIT]}
work=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT

binary=${BINARY:-}
if [ -z "$binary" ]; then
    git clone -q . "$work/source"
    git -C "$work/source" checkout -q "${2:-v$version}"
    binary=$work/cellserver
    (cd "$work/source" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags grpcnotrace \
        -ldflags "-X main.version=v$version" -o "$binary" ./cmd/cellserver)
fi
cli() { "$binary" cli -s "$work/socket" "$@"; }
start() { # arguments of a server
    "$binary" --config "$top/cellserver.conf" --policies "$top/policies.yaml" --port 0 --unixsocket "$work/socket" \
        "$@" 2>"$work/log" &
    pids+=($!)
    until cli PING >/dev/null 2>&1; do
        kill -0 "${pids[-1]}" || { cat "$work/log" >&2; exit 1; }
        sleep 0.1
    done
}
stop() { kill "${pids[-1]}" && wait "${pids[-1]}"; unset 'pids[-1]'; }
play() { # calls without a mistake
    cli <"$top/calls.txt" >"$work/replies" || { cat "$work/replies" >&2; exit 1; }
}
read_back() { # each call with its reply
    while read -r line; do
        echo "> $line"
        cli <<<"$line"
    done <"$top/reads.txt"
}

mkdir "$work/new"
start --dir "$work/new/keys"
play
cli BGREWRITEAOF >/dev/null # so that there is a snapshot, and a journal after it
until cli INFO persistence | grep -q '^aof_rewrite_in_progress:0'; do sleep 0.1; done
cli SET later 1 >/dev/null
read_back >"$work/new/dir.txt"
stop
rm -f "$work/new/keys/lock"

port=17379
while (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
redis-server --port $port --bind 127.0.0.1 --dir "$work/new" --dbfilename store.rdb --save '' --daemonize no \
    >"$work/redis.log" &
redis=$!
pids=("$redis" "${pids[@]}")
until redis-cli -p $port PING >/dev/null 2>&1; do sleep 0.1; done
start --store "redis://127.0.0.1:$port"
play
cli SET later 1 >/dev/null
read_back >"$work/new/store.txt"
stop
redis-cli -p $port SAVE >/dev/null

cp "$top/cellserver.conf" "$top/policies.yaml" "$work/new/"
rm -rf "$top/testdata/$version"
mkdir -p "$top/testdata"
mv "$work/new" "$top/testdata/$version"
du -sh "$top/testdata/$version"
