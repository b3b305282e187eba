#!/usr/bin/env bash
# Starts bin/cellserver-fips with TLS and a password, and, where there is a redis-server, with a store, while Go allows only
# the cryptography of FIPS 140-3 and panics at any other (GODEBUG=fips140=only): test/fips/run.sh BINARY
set -euo pipefail
binary=$(realpath "${1:?test/fips/run.sh BINARY}")
work=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
export GODEBUG=fips140=only

said=$(go version -m "$binary")
grep -q 'GOFIPS140=v1' <<<"$said" || { echo "test/fips: $binary was not built with the module" >&2; exit 1; }
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out certificate.pem 2>/dev/null
free() { # a port that nobody uses
    local port=$((20000 + RANDOM % 20000))
    while (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
    echo $port
}
await() { # a process and a command, until it succeeds
    for _ in $(seq 300); do
        "${@:2}" >/dev/null 2>&1 && return
        kill -0 "$1" || break
        sleep 0.1
    done
    cat log >&2
    exit 1
}
serve() { # arguments of a server; makes a few calls over TLS
    local port
    port=$(free)
    "$binary" --port 0 --tls-port "$port" --tls-cert-file certificate.pem --tls-key-file key.pem --tls-auth-clients no \
        --requirepass secret --unixsocket socket "$@" 2>log &
    local pid=$!
    pids+=("$pid")
    cli() { "$binary" cli --tls --cacert certificate.pem -p "$port" -a secret "$@"; }
    await "$pid" cli PING
    [ "$(cli CL.FIXED key 10 60 3 | head -3 | tr '\n' ' ')" = '0 10 7 ' ] || { cat log >&2; exit 1; }
    [ "$(cli ACL SETUSER user on '>password')" = OK ]
    kill "$pid"
    wait "$pid"
    ! grep -q panic log
}

serve --dir "$work/keys"
if command -v redis-server >/dev/null; then
    port=$(free)
    redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$work" >redis.log &
    pids+=($!)
    serve --store "redis://127.0.0.1:$port"
else
    echo 'test/fips: NOT CHECKED with a store: there is no redis-server' >&2
fi
echo 'cellserver-fips works with the cryptography of FIPS 140-3 alone'
