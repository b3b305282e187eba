#!/usr/bin/env bash
# Runs the programs of docs/clients.md against a real server: test/snippets/run.sh path/to/cellserver
# Go's are an ordinary test. Each of the others prints "ok" or "not run", with the reason. Clients are those of
# test/clients/installed.sh; Python's and Node.js's have to run, PHP's (php-cli with php-redis, php-predis) must be there. Needs python3 for itself.
set -eu

binary=$(realpath "${1:?usage: $0 path/to/cellserver}")
here=$(dirname "$(realpath "$0")")
. "$here/../clients/installed.sh"
page=$here/../../docs/clients.md
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
has() { command -v "$1" >/dev/null; }
not_run() { echo "not run: $1 ($2)"; }
has python3 || fail "python3 is not installed"

# ask sends the server a line and waits until it has done it.
ask() {
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf '%s\r\nQUIT\r\n' "$1" >&3
    cat <&3 >/dev/null
    exec 3<&- 3>&-
}

# snippet writes the block of docs/clients.md with this file name, with another port than 6379, and with time-outs of 3 seconds
# instead of 100, 200 or 500 ms: a busy machine is no reason to fail.
snippet() { # file, port
    awk -v name="$1" '/^```/ { if (inside) exit; inside = $2 == name; next } inside' "$page" |
        sed -E "s/\\b[125]00\\b/3000/g; s/ 0\\.1([],)])/ 3\\1/g; s/=0\\.1,/=3,/; s/6379/$2/" >"$dir/$1"
    grep -q "$2" "$dir/$1" || fail "$1: no such block in docs/clients.md, or no port in it"
}

# expect runs a program with two minutes to spare and compares what it prints with a pattern.
expect() { # what, pattern, file, command...
    local what=$1 pattern=$2 file=$3 printed
    shift 3
    printed=$(cd "$dir" && timeout 120 "$@" "$file" 2>"$dir/complaint") || fail "$file, $what: status $?: $(cat "$dir/complaint")"
    [[ $printed =~ ^$pattern$ ]] || fail "$file, $what: printed $printed"
}

# check tells one story with any program: allowed, limited, three ways in which no answer comes, and an error as answer.
check() { # name, file, command...
    local name=$1 file=$2
    shift 2
    ask FLUSHALL
    snippet "$file" "$port"
    expect 'a fresh key' 'allowed: 15 left' "$file" "$@"
    ask 'CL.THROTTLE user123 15 30 60 300 FORCE'
    expect 'a key in debt' 'limited: try again in 5[0-9][0-9] s' "$file" "$@"
    for mode in drop hang; do
        : >"$dir/$mode.count"
        snippet "$file" "$(cat "$dir/$mode.port")"
        expect "a reply that gets lost ($mode)" 'no answer: letting it pass' "$file" "$@"
        [ "$(wc -l <"$dir/$mode.count")" = 1 ] || fail "$file, $mode: the call was sent $(wc -l <"$dir/$mode.count") times"
    done
    snippet "$file" "$(cat "$dir/refuse.port")"
    expect 'no server' 'no answer: letting it pass' "$file" "$@"
    snippet "$file" "$port"
    sed -i -E 's/\b15\b/-15/' "$dir/$file"
    ! (cd "$dir" && timeout 120 "$@" "$file" 2>&1) | grep -q allowed || fail "$file takes an error for a yes"
    echo "ok $name"
}

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

await() { # file, pattern
    for _ in $(seq 600); do
        grep -q "$2" "$1" && return
        sleep 0.1
    done
    fail "nothing like $2 in $(cat "$1")"
}

port=$(free_port)
"$binary" --port "$port" >"$dir/stdout" 2>&1 &
started+=($!)
await "$dir/stdout" 'Ready to accept connections'
for mode in drop hang refuse; do
    python3 "$here/lossy.py" "$mode" "$port" "$dir/$mode.count" >"$dir/$mode.port" &
    started+=($!)
    await "$dir/$mode.port" '[0-9]'
done

python_clients() {
    installed python || fail "redis-py cannot be installed: $(tail -1 "$clients/python.log")"
    check "python redis-py $("$clients/python/bin/python" -c 'import redis; print(redis.__version__)')" limit.py "$clients/python/bin/python"
}

node_clients() {
    installed node || fail "redis and ioredis cannot be installed: $(tail -1 "$clients/node.log")"
    ln -s "$clients/node/node_modules" "$dir"
    version() { node -p "JSON.parse(require('fs').readFileSync('$clients/node/node_modules/$1/package.json')).version"; }
    check "node node-redis $(version redis)" node-redis.mjs node
    check "node ioredis $(version ioredis)" ioredis.mjs node
}

php_clients() {
    has php || { not_run php "php is not installed"; return; }
    if php -m | grep -qx redis; then
        check "php phpredis $(php -r 'echo phpversion("redis");')" phpredis.php php
    else
        not_run phpredis "php has no extension redis"
    fi
    mkdir "$dir/vendor" # as Composer makes it, from the system's Predis
    echo '<?php require "Predis/Autoloader.php"; Predis\Autoloader::register();' >"$dir/vendor/autoload.php"
    if (cd "$dir" && php -r 'require "vendor/autoload.php"; exit(class_exists("Predis\Client") ? 0 : 1);') >"$dir/log" 2>&1; then
        check "php predis $(cd "$dir" && php -r 'require "vendor/autoload.php"; echo Predis\Client::VERSION;')" predis.php php
    else
        not_run predis "Predis is not installed"
    fi
}

java_clients() {
    has java && has javac && has mvn || { not_run java "a JDK and mvn are not installed"; return; }
    installed java || { not_run java "Maven cannot fetch jedis and lettuce: $(tail -1 "$clients/java.log")"; return; }
    version() { basename "$clients/java/lib/$1"-[0-9]*.jar .jar | sed "s/^$1-//"; }
    check "java jedis $(version jedis)" JedisLimit.java java -cp "$clients/java/lib/*"
    check "java lettuce $(version lettuce-core)" LettuceLimit.java java -cp "$clients/java/lib/*"
}

python_clients
node_clients
php_clients
java_clients
