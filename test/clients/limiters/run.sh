#!/usr/bin/env bash
# Tests limiter libraries that were made for Redis: test/clients/limiters/run.sh path/to/cellserver
# Each program checks what its library does. It must print the same lines with cellserver and with redis-server, and must fail
# when the proxy forgetful.py loses one call. ../installed.sh installs the libraries. Needs python3 with venv, node with npm,
# redis-server and redis-cli.
set -eu

binary=$(realpath "${1:?usage: $0 path/to/cellserver}")
here=$(dirname "$(realpath "$0")")
. "$here/../installed.sh"
dir=$(mktemp -d)
started=()
finish() {
    for process in "${started[@]}"; do
        kill -KILL "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    rm -rf "$dir"
}
trap finish EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

await() { # file, pattern
    for _ in $(seq 600); do
        grep -q "$2" "$1" && return
        sleep 0.1
    done
    fail "waited a minute for a line that matches '$2', but got: $(cat "$1")"
}

# start starts a server, and sets the variable with its name to its port.
start() { # name, command...
    local name=$1 port
    shift
    port=$(free_port)
    "$@" --port "$port" >"$dir/$name.log" 2>&1 &
    started+=($!)
    await "$dir/$name.log" 'Ready to accept connections'
    printf -v "$name" %s "$port"
}

# play empties a server and runs a program with it, or with a proxy in front of it.
play() { # port, output file, program, port of the proxy if there is one
    redis-cli -p "$1" FLUSHALL >/dev/null
    # shellcheck disable=SC2086 # the words of the program
    (cd "$dir" && timeout 120 $3 "${4:-$1}" >"$2" 2>"$2.stderr")
}

# play_with_loss plays a program with cellserver behind forgetful.py, which loses the n-th COMMAND.
play_with_loss() { # output file, program, COMMAND, n
    : >"$dir/forgetful.port"
    python3 "$here/forgetful.py" "$cellserver" "$3" "$4" >"$dir/forgetful.port" &
    started+=($!)
    await "$dir/forgetful.port" '[0-9]'
    play "$cellserver" "$1" "$2" "$(cat "$dir/forgetful.port")"
}

check() { # name, program, COMMAND...: those that the proxy loses
    local name=$1 program=$2 command
    shift 2
    for server in cellserver redis; do
        play "${!server}" "$dir/$server" "$program" || fail "$name on $server: $(cat "$dir/$server" "$dir/$server.stderr")"
    done
    diff "$dir/redis" "$dir/cellserver" || fail "$name behaves differently with redis-server"
    for command; do
        play_with_loss "$dir/behind" "$program" "$command" 0 || fail "$name behind forgetful.py: $(cat "$dir/behind.stderr")"
        ! play_with_loss "$dir/behind" "$program" "$command" 3 || fail "$name does not notice that a $command was lost"
        grep -q AssertionError "$dir/behind.stderr" || fail "$name, with a lost $command, failed in another way: $(cat "$dir/behind.stderr")"
    done
    echo "ok $name: $(wc -l <"$dir/cellserver") lines as with redis-server; notices a lost $*"
}

for tool in python3 node npm redis-server redis-cli; do
    command -v "$tool" >/dev/null || fail "$tool is not installed"
done
for language in python node; do
    installed "$language" || fail "$language: $(cat "$clients/$language.log")"
done
cp "$here/flexible.mjs" "$dir"
ln -s "$clients/node/node_modules" "$dir"
npm_version() { node -p "JSON.parse(require('fs').readFileSync('$dir/node_modules/$1/package.json')).version"; }
pip_version() { "$clients/python/bin/python" -c "from importlib.metadata import version; print(version('$1'))"; }

start cellserver "$binary"
start redis redis-server --bind 127.0.0.1 --dir "$dir" --save '' --appendonly no
for client in ioredis node-redis; do
    check "rate-limiter-flexible $(npm_version rate-limiter-flexible) with $client $(npm_version "${client#node-}")" "node flexible.mjs $client" SET
done
check "django-ratelimit $(pip_version django-ratelimit) and Django REST framework $(pip_version djangorestframework) on Django $(pip_version django)" \
    "$clients/python/bin/python $here/pages.py" SET INCRBY
check "fastapi-redis-sdk $(pip_version fastapi-redis-sdk) on FastAPI $(pip_version fastapi)" "$clients/python/bin/python $here/sdk.py" INCREX
! grep -v level=INFO "$dir/cellserver.log" || fail "the server logged these warnings"
