#!/usr/bin/env bash
# Real clients against a real server: test/clients/run.sh path/to/cellserver
# Fetches the newest redis-py, node-redis and ioredis. Needs python3 with venv, node with npm, and redis-cli.
set -eu

binary=$(realpath "${1:?usage: $0 path/to/cellserver}")
here=$(dirname "$(realpath "$0")")
dir=$(mktemp -d)
server=
finish() {
    if [ -n "$server" ]; then kill -KILL "$server" 2>/dev/null || true; fi
    rm -rf "$dir"
}
trap finish EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

for tool in python3 node npm redis-cli; do
    command -v "$tool" >/dev/null || fail "$tool is not installed"
done
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet --disable-pip-version-check redis
cp "$here/node.mjs" "$dir"
(cd "$dir" && echo '{"private": true}' >package.json && npm install --silent --no-audit --no-fund redis ioredis)

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$binary" --port "$port" --loglevel warning >"$dir/stdout" 2>"$dir/stderr" &
server=$!
for _ in $(seq 100); do
    grep -q 'Ready to accept connections' "$dir/stdout" && break
    kill -0 "$server" 2>/dev/null || fail "the server ended: $(cat "$dir/stderr")"
    sleep 0.1
done
grep -q 'Ready to accept connections' "$dir/stdout" || fail "the server is not ready"

printed=$(redis-cli -p "$port" CL.THROTTLE user123 15 30 60 1 | tr '\n' ' ')
[ "$printed" = "0 16 15 -1 2 " ] || fail "redis-cli printed $printed"
echo "ok redis-cli $(redis-cli --version | cut -d ' ' -f 2)"
python3 "$here/raw.py" "$port"
"$dir/venv/bin/python" "$here/python.py" "$port"
(cd "$dir" && timeout 60 node node.mjs "$port")

kill -TERM "$server"
status=0
wait "$server" || status=$?
server=
[ "$status" = 0 ] || fail "exit status $status after SIGTERM: $(cat "$dir/stderr")"
[ ! -s "$dir/stderr" ] || fail "the server complained: $(cat "$dir/stderr")"
