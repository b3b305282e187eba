#!/usr/bin/env bash
# Tests the programs of docs/clients.md and docs/recipes.md with a real server: test/snippets/run.sh path/to/cellserver
# `go test` tests the Go programs; this script tests the others, and prints "ok" or "not run" and the reason for each of them.
# test/clients/installed.sh installs the clients. Python and Node.js have to run; those for PHP (php-cli with php-redis and
# php-predis) are used where they are installed. The script itself needs python3.
set -eu

binary=$(realpath "${1:?usage: $0 path/to/cellserver}")
here=$(dirname "$(realpath "$0")")
. "$here/../clients/installed.sh"
page=$here/../../docs/clients.md
recipes=$here/../../docs/recipes.md
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

# ask sends an inline command to the server, and waits until it is executed.
ask() {
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf '%s\r\nQUIT\r\n' "$1" >&3
    cat <&3 >/dev/null
    exec 3<&- 3>&-
}

# block prints the block of a document with this name.
block() { # document, name
    awk -v name="$2" '/^```/ { if (inside) exit; inside = $2 == name; next } inside' "$1"
}

# snippet writes the block of docs/clients.md with this name to a file. It replaces the port 6379, and timeouts of 100, 200 or
# 500 ms by some seconds: 60 where there is an answer, so that the test does not fail on a busy machine.
snippet() { # file, port, seconds
    block "$page" "$1" | sed -E "s/\\b[125]00\\b/${3}000/g; s/ 0\\.1([],)])/ $3\\1/g; s/=0\\.1,/=$3,/; s/6379/$2/" >"$dir/$1"
    grep -q "$2" "$dir/$1" || fail "docs/clients.md has no block named $1, or the block has no port"
}

# expect runs a program, for two minutes at most, and compares its output with a pattern.
expect() { # case, pattern, file, command...
    local what=$1 pattern=$2 file=$3 printed
    shift 3
    printed=$(cd "$dir" && timeout 120 "$@" "$file" 2>"$dir/program.stderr") || fail "$file, $what: exit status $?: $(cat "$dir/program.stderr")"
    [[ $printed =~ ^$pattern$ ]] || fail "$file, $what: printed $printed, which does not match $pattern"
}

# check tests a program with a call that is allowed, one that is limited, three that get no reply, and one that gets
# an error reply. The program sends a call that gets no reply once, or $sends times.
check() { # name, file, command...
    local name=$1 file=$2
    shift 2
    ask FLUSHALL
    snippet "$file" "$port" 60
    expect 'a fresh key' 'allowed: 15 left' "$file" "$@"
    ask 'CL.THROTTLE user123 15 30 60 300 FORCE'
    expect 'a key in debt' 'limited: try again in 5[0-9][0-9] s' "$file" "$@"
    for mode in drop hang; do
        : >"$dir/$mode.count"
        snippet "$file" "$(cat "$dir/$mode.port")" 3
        expect "a lost reply ($mode)" 'no answer: letting it pass' "$file" "$@"
        [ "$(wc -l <"$dir/$mode.count")" = "${sends:-1}" ] || fail "$file, $mode: the call was sent $(wc -l <"$dir/$mode.count") times"
    done
    snippet "$file" "$(cat "$dir/refuse.port")" 3
    expect 'no server' 'no answer: letting it pass' "$file" "$@"
    snippet "$file" "$port" 60
    sed -i -E 's/\b15\b/-15/' "$dir/$file"
    ! (cd "$dir" && timeout 120 "$@" "$file" 2>&1) | grep -q allowed || fail "$file reports an error reply as allowed"
    echo "ok $name"
}

# recipe compares what a program of docs/recipes.md prints on an empty server with the block .txt of the same name. Only a
# number of seconds may differ. The program retries.* does not get the reply to its first call, and must send it twice.
recipe() { # file, command...
    local file=$1 at=$port hour expected printed program=$1
    shift
    expected=$(block "$recipes" "${file%.*}.txt" | without_seconds)
    [[ $file != retries.* ]] || at=$(cat "$dir/once.port")
    block "$recipes" "$file" | sed -E "s/\\b500\\b/20000/; s/=0\\.5,/=20,/; s/6379/$at/; s/8000/$(cat "$dir/model.port")/" >"$dir/$file"
    [ -n "$expected" ] && grep -q "$at" "$dir/$file" || fail "docs/recipes.md has no block named $file or ${file%.*}.txt"
    if [[ $file = *.mts ]]; then
        compile "$file"
        program=${file%.mts}.mjs
    fi
    until [ "${hour:-}" = "$(date +%H)" ]; do # a day may end while a program with a calendar quota runs
        hour=$(date +%H)
        : >"$dir/once.count"
        ask FLUSHALL
        printed=$(cd "$dir" && timeout 120 "$@" "$program" 2>"$dir/program.stderr") ||
            fail "$file: exit status $?: $(cat "$dir/program.stderr")"
    done
    [ "$(without_seconds <<<"$printed")" = "$expected" ] || fail "$file printed $printed $(cat "$dir/program.stderr")"
    [[ $file != retries.* || -s $dir/once.count ]] || fail "$file: no reply was lost"
    echo "ok $file"
}
without_seconds() { sed -E 's/[0-9]+ s\b/N s/'; }

# compile checks the types of a program in TypeScript, and compiles it. Node.js 20 does not run TypeScript.
compile() { # file
    local own=$clients/own_node/node_modules
    [ -d "$own/typescript" ] || fail "$1: there is no compiler: run clients/test.sh first"
    (cd "$dir" && node "$own/typescript/bin/tsc" --strict --target es2022 --module node20 --types node \
        --typeRoots "$own/@types" --skipLibCheck "$1") >"$dir/program.stderr" || fail "$1: $(cat "$dir/program.stderr")"
}

# recipes_in runs all programs of docs/recipes.md in a language: as many as there are recipes.
recipes_in() { # pattern of extensions, command...
    local extension=$1 names name
    shift
    names=$(sed -nE "s/^\`\`\`[a-z]+ ([a-z]+\.$extension)\$/\1/p" "$recipes")
    [ "$(wc -w <<<"$names")" = "$(grep -cE '^```text [a-z]+\.txt$' "$recipes")" ] || fail "docs/recipes.md: not all have .$extension"
    for name in $names; do recipe "$name" "$@"; done
}

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

await() { # file, pattern
    for _ in $(seq 600); do
        grep -q "$2" "$1" && return
        sleep 0.1
    done
    fail "waited a minute for a line that matches '$2', but got: $(cat "$1")"
}

port=$(free_port)
"$binary" --port "$port" --id-ttl 3600 2>"$dir/log" &
started+=($!)
await "$dir/log" 'Ready to accept connections'
for mode in drop once hang refuse; do
    : >"$dir/$mode.count"
    python3 "$here/lossy.py" "$mode" "$port" "$dir/$mode.count" >"$dir/$mode.port" &
    started+=($!)
    await "$dir/$mode.port" '[0-9]'
done

python3 "$here/model.py" >"$dir/model.port" &
started+=($!)
await "$dir/model.port" '[0-9]'

python_clients() {
    installed python || fail "cannot install redis-py: $(tail -1 "$clients/python.log")"
    sends=3 check "python redis-py $("$clients/python/bin/python" -c 'import redis; print(redis.__version__)')" limit.py "$clients/python/bin/python"
    recipes_in py "$clients/python/bin/python"
}

node_clients() {
    installed node || fail "cannot install redis and ioredis: $(tail -1 "$clients/node.log")"
    ln -s "$clients/node/node_modules" "$dir"
    version() { node -p "JSON.parse(require('fs').readFileSync('$clients/node/node_modules/$1/package.json')).version"; }
    check "node node-redis $(version redis)" node-redis.mjs node
    check "node ioredis $(version ioredis)" ioredis.mjs node
    recipes_in 'm[jt]s' node
}

php_clients() {
    has php || { not_run php "php is not installed"; return; }
    if php -m | grep -qx redis; then
        check "php phpredis $(php -r 'echo phpversion("redis");')" phpredis.php php
    else
        not_run phpredis "php has no extension redis"
    fi
    mkdir "$dir/vendor" # as Composer would create it, but with the Predis of the system
    echo '<?php require "Predis/Autoloader.php"; Predis\Autoloader::register();' >"$dir/vendor/autoload.php"
    if (cd "$dir" && php -r 'require "vendor/autoload.php"; exit(class_exists("Predis\Client") ? 0 : 1);') >"$dir/log" 2>&1; then
        check "php predis $(cd "$dir" && php -r 'require "vendor/autoload.php"; echo Predis\Client::VERSION;')" predis.php php
    else
        not_run predis "Predis is not installed"
    fi
}

java_clients() {
    has java && has javac && has mvn || { not_run java "a JDK and mvn are not installed"; return; }
    installed java || { not_run java "Maven cannot download Jedis and Lettuce: $(tail -1 "$clients/java.log")"; return; }
    version() { basename "$clients/java/lib/$1"-[0-9]*.jar .jar | sed "s/^$1-//"; }
    check "java jedis $(version jedis)" JedisLimit.java java -cp "$clients/java/lib/*"
    check "java lettuce $(version lettuce-core)" LettuceLimit.java java -cp "$clients/java/lib/*"
}

python_clients
node_clients
php_clients
java_clients
