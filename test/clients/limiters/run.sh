#!/usr/bin/env bash
# Limiter libraries, as they come, on cellserver's Redis commands: test/clients/limiters/run.sh path/to/cellserver
# Each program asserts what its library does, and must print the same lines on redis-server; and it must complain of a server
# that forgets one call. ../installed.sh installs them. Needs python3 with venv, node with npm, redis-server and redis-cli.
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
    fail "nothing like $2 in $(cat "$1")"
}

start() { # name, command...: with --port; the port is then in the variable of that name
    local name=$1 port
    shift
    port=$(free_port)
    "$@" --port "$port" >"$dir/$name.stdout" 2>"$dir/$name.stderr" &
    started+=($!)
    await "$dir/$name.stdout" 'Ready to accept connections'
    printf -v "$name" %s "$port"
}

# play runs a program on an emptied server, by way of another port if there is one.
play() { # port, file for its lines, program, its port if it is another
    redis-cli -p "$1" FLUSHALL >/dev/null
    # shellcheck disable=SC2086 # the words of the program
    (cd "$dir" && timeout 120 $3 "${4:-$1}" >"$2" 2>"$2.complaint")
}

# forgetting plays a program on cellserver behind forgetful.py.
forgetting() { # file for its lines, program, COMMAND, n
    : >"$dir/forgetful.port"
    python3 "$here/forgetful.py" "$cellserver" "$3" "$4" >"$dir/forgetful.port" &
    started+=($!)
    await "$dir/forgetful.port" '[0-9]'
    play "$cellserver" "$1" "$2" "$(cat "$dir/forgetful.port")"
}

check() { # name, program, COMMAND...: those that are forgotten
    local name=$1 program=$2 command
    shift 2
    for server in cellserver redis; do
        play "${!server}" "$dir/$server" "$program" || fail "$name on $server: $(cat "$dir/$server" "$dir/$server.complaint")"
    done
    diff "$dir/redis" "$dir/cellserver" || fail "$name sees something else than on redis-server"
    for command; do
        forgetting "$dir/behind" "$program" "$command" 0 || fail "$name behind forgetful.py: $(cat "$dir/behind.complaint")"
        ! forgetting "$dir/behind" "$program" "$command" 3 || fail "$name does not notice that a $command was forgotten"
        grep -q AssertionError "$dir/behind.complaint" || fail "$name, a $command forgotten: $(cat "$dir/behind.complaint")"
    done
    echo "ok $name: $(wc -l <"$dir/cellserver") lines as on redis-server; notices a lost $*"
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

start cellserver "$binary" --loglevel warning
start redis redis-server --bind 127.0.0.1 --dir "$dir" --save '' --appendonly no
for client in ioredis node-redis; do
    check "rate-limiter-flexible $(npm_version rate-limiter-flexible) with $client $(npm_version "${client#node-}")" "node flexible.mjs $client" SET
done
check "django-ratelimit $(pip_version django-ratelimit) and Django REST framework $(pip_version djangorestframework) on Django $(pip_version django)" \
    "$clients/python/bin/python $here/pages.py" SET INCRBY
[ ! -s "$dir/cellserver.stderr" ] || fail "the server complained: $(cat "$dir/cellserver.stderr")"
