#!/usr/bin/env bash
# Any Redis client, with its defaults: test/clients/run.sh path/to/cellserver [--write]
# Each program tells the same story with its client: a decision, counters, a pipeline, a transaction, errors, database 2, and
# that the server was restarted. It prints "client NAME VERSION", then "ok FEATURE" for each, and "restart" when it waits for that
# on its standard input. Until then nothing may be on its standard error. It reads PORT, and PROTOCOL: 2, 3 or empty, as the client
# comes; and TLS: a directory with ca.crt, client.crt and client.key if PORT is one for TLS, or empty. Then it begins again behind limiters/forgetful.py, which loses one decision of its pipeline: that it must notice.
# Clients are installed by installed.sh, CLIENTS=newest for the newest of each; PHP's, Ruby's and C's, and Debian's redis-py, must be there. What is not there is
# "not run"; Go, Node.js and Python have to run. --write writes the tables into docs/compatibility.md.
set -eu

binary=$(realpath "${1:?usage: $0 path/to/cellserver [--write]}")
here=$(dirname "$(realpath "$0")")
. "$here/installed.sh"
docs=$here/../../docs/compatibility.md
features=(throttle counters pipeline transaction errors database restart)
dir=$(mktemp -d)
servers=() others=()
finish() {
    for process in "${servers[@]}" "${others[@]}"; do
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
has() { for tool; do command -v "$tool" >/dev/null || return; done; }
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
await() { # file, pattern
    for _ in $(seq 600); do
        grep -q "$2" "$1" && return
        sleep 0.1
    done
    fail "nothing like $2 in $(cat "$1")"
}

# certificates makes an authority, and what it signs for both sides.
certificates() {
    local name
    mkdir "$dir/tls"
    (
        cd "$dir/tls"
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=authority
        for name in server client; do
            openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$name.key" -out "$name.csr" -subj "/CN=$name"
            openssl x509 -req -in "$name.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -out "$name.crt" -days 2 \
                -extfile <(echo "subjectAltName=DNS:localhost,IP:127.0.0.1")
        done
    ) >"$dir/log" 2>&1 || fail "no certificates: $(cat "$dir/log")"
}

ports=()
serve() { # which of the servers
    : >"$dir/stdout.$1"
    local tls=()
    [ "$1" != 0 ] || tls=(--tls-port "$tls_port" --tls-cert-file "$dir/tls/server.crt" --tls-key-file "$dir/tls/server.key"
        --tls-ca-cert-file "$dir/tls/ca.crt")
    "$binary" --port "${ports[$1]}" "${tls[@]}" --loglevel warning >"$dir/stdout.$1" 2>>"$dir/stderr" &
    servers[$1]=$!
    await "$dir/stdout.$1" 'Ready to accept connections'
}
end() { # which of the servers
    local status=0
    kill -TERM "${servers[$1]}"
    wait "${servers[$1]}" || status=$?
    [ "$status" = 0 ] || fail "exit status $status after SIGTERM: $(cat "$dir/stderr")"
}

# restart is what a program asks for. Before it, what the server says of the program's connections, and what the program complained of.
restart() {
    resp=$(redis-cli -p "${ports[0]}" CLIENT LIST | sed -n '/cmd=client|list/d; s/.* resp=\([23]\) .*/\1/p' | sort -u | tr -d '\n')
    complaint=$(cat "$dir/complaint")
    end 0
    serve 0
}

# tell runs a program until its end. What it said is then in name, version, resp, complaint, and in cells by feature.
tell() { # port, program...
    local word rest status=0
    name='' version='' resp='' complaint='' cells=()
    for port in "${ports[@]}"; do redis-cli -p "$port" FLUSHALL >/dev/null; done
    rm -f "$dir/to" "$dir/from"
    mkfifo "$dir/to" "$dir/from"
    exec 4<>"$dir/to"
    (cd "$dir" && PORT=$1 exec timeout 120 "${@:2}") <"$dir/to" >"$dir/from" 2>"$dir/complaint" 4>&- &
    local program=$!
    while read -r word rest; do
        case $word in
        client) name=${rest% *} version=${rest##* } ;;
        restart) restart && echo >&4 ;;
        ok) cells[${rest%% *}]=$(echo "${rest#"${rest%% *}"}" | sed 's/^ *//') ;;
        esac
    done <"$dir/from"
    exec 4>&-
    wait "$program" || status=$?
    return "$status"
}

row() { printf '| %s ' "$@" >>"$dir/$table" && echo '|' >>"$dir/$table"; }

# story has a program tell its story, and then notice that a decision was lost.
declare -A cells ran
story() { # language, protocol or "", program...
    local language=$1 feature words=()
    export PROTOCOL=$2
    shift 2
    tell "$([ -n "$TLS" ] && echo "$tls_port" || echo "${ports[0]}")" "$@" || fail "$*, protocol ${PROTOCOL:-by default}: $name $version, after ${!cells[*]}: $(cat "$dir/complaint")"
    [ "${#cells[@]}" = "${#features[@]}" ] || fail "$*: only ${!cells[*]}"
    [ -z "$complaint" ] || fail "$*, protocol ${PROTOCOL:-by default}, complained: $complaint"
    [[ $resp = [23] && $resp = "${PROTOCOL:-$resp}" ]] || fail "$* spoke RESP$resp, not RESP$PROTOCOL"
    for feature in "${features[@]}"; do
        echo "ok ${name/ /-}-$version-resp$resp${TLS:+-tls} $feature${cells[$feature]:+ ${cells[$feature]}}"
        words+=("${cells[$feature]:-ok}")
    done
    echo "ok ${name/ /-}-$version-resp$resp${TLS:+-tls} quiet"
    words[0]="\`${words[0]}\`"
    row "$language: $name $version${TLS:+, over TLS}" "RESP$resp$([ -n "$PROTOCOL" ] || echo ', by default')" "${words[@]}" ok
    ran[$language]=yes
    [ -n "$TLS" ] || unnoticed "$@"
}

# over_tls is story over TLS, with certificates on both sides.
over_tls() { # language, protocol or "", program...
    TLS=$dir/tls story "$@"
}

unnoticed() { # program...
    : >"$dir/forgetful.port"
    python3 "$here/limiters/forgetful.py" "${ports[0]}" CL.THROTTLE 5 >"$dir/forgetful.port" &
    others=($!)
    await "$dir/forgetful.port" '[0-9]'
    ! OTHER_PORTS='' tell "$(cat "$dir/forgetful.port")" "$@" || fail "$* does not notice that a decision of its pipeline was lost"
    [ "${#cells[@]}${cells[counters]-no}" = 2 ] || fail "$*, a decision of its pipeline lost: it stopped after ${!cells[*]}: $(cat "$dir/complaint")"
    kill "${others[0]}"
    wait "${others[0]}" 2>/dev/null || true
    others=()
}

not_run() { # what, why
    echo "not run: $1 ($2)"
    local cell words=()
    for ((cell = 0; cell < columns - 2; cell++)); do words+=(''); done
    row "$1" "not run: $2" "${words[@]}"
}

go_clients() {
    cp -r "$here/go" "$dir/source"
    ! newest || (cd "$dir/source" && go get -u ./... && go mod tidy) || fail "the newest of Go's clients cannot be had"
    (cd "$dir/source" && go vet ./... && go build -o "$dir/go/" ./...) || fail "the Go programs cannot be built"
    story Go '' go/goredis client
    story Go 2 go/goredis client
    over_tls Go '' go/goredis client
    story Go '' go/goredis universal
    OTHER_PORTS="${ports[1]} ${ports[2]}" story Go '' go/goredis ring
    story Go '' go/redigo
    story Go '' go/rueidis
    story Go 2 go/rueidis
}

node_clients() {
    has node npm || { not_run Node.js "node and npm are not installed"; return; }
    installed node || { not_run Node.js "npm: $(head -1 "$clients/node.log")"; return; }
    cp "$here"/node/*.mjs "$dir"
    ln -s "$clients/node/node_modules" "$dir"
    story Node.js '' node node-redis.mjs redis
    story Node.js 2 node node-redis.mjs redis
    over_tls Node.js '' node node-redis.mjs redis
    story Node.js '' node node-redis.mjs redis5
    story Node.js 3 node node-redis.mjs redis5
    story Node.js '' node ioredis.mjs ioredis
    story Node.js 2 node ioredis.mjs ioredis
    story Node.js '' node ioredis.mjs ioredis5
}

python_clients() {
    installed python || { not_run Python "redis-py cannot be installed: $(tail -1 "$clients/python.log")"; return; }
    story Python '' "$clients/python/bin/python" "$here/python.py"
    story Python 2 "$clients/python/bin/python" "$here/python.py"
    over_tls Python '' "$clients/python/bin/python" "$here/python.py"
    if /usr/bin/python3 -c 'import redis' 2>/dev/null; then
        story Python '' /usr/bin/python3 "$here/python.py"
    else
        not_run "Python: Debian's redis-py" "python3-redis is not installed"
    fi
}

php_clients() {
    has php || { not_run PHP "php is not installed"; return; }
    cp "$here"/php/*.php "$dir"
    if php -m | grep -qx redis; then story PHP '' php phpredis.php; else not_run "PHP: phpredis" "php has no extension redis"; fi
    if (cd "$dir" && php -r 'exit(stream_resolve_include_path("Predis/Autoloader.php") ? 0 : 1);'); then
        story PHP '' php predis.php
    else
        not_run "PHP: Predis" "Predis is not installed"
    fi
}

ruby_clients() {
    has ruby && ruby -e 'require "redis"' 2>/dev/null || { not_run "Ruby: redis-rb" "ruby and its redis are not installed"; return; }
    story Ruby '' ruby "$here/ruby.rb"
}

c_clients() {
    has cc && cc -Wall -Wextra -Werror -o "$dir/hiredis" "$here/c/hiredis.c" -lhiredis >"$dir/log" 2>&1 ||
        { not_run "C: hiredis" "cc or hiredis is not installed"; return; }
    story C '' ./hiredis
}

rust_clients() {
    has cargo || { not_run "Rust: redis-rs" "cargo is not installed"; return; }
    installed rust || { not_run "Rust: redis-rs" "cargo: $(tail -1 "$clients/rust.log")"; return; }
    VERSION=$(sed -n '/^name = "redis"$/{n; s/version = "\(.*\)"/\1/p}' "$clients/rust/Cargo.lock")
    export VERSION
    story Rust '' "$clients/rust/target/debug/clients"
    story Rust 3 "$clients/rust/target/debug/clients"
}

java_clients() {
    has java javac mvn || { not_run Java "a JDK and mvn are not installed"; return; }
    installed java || { not_run Java "Maven: $(tail -1 "$clients/java.log")"; return; }
    javac -nowarn -proc:none -cp "$clients/java/lib/*" -d "$dir/java" "$here"/java/*.java 2>"$dir/log" || fail "$(cat "$dir/log")"
    local java=(java -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$clients/java/lib/*:java")
    story Java '' "${java[@]}" JedisStory
    story Java 2 "${java[@]}" JedisStory
    story Java '' "${java[@]}" LettuceStory
    story Java 2 "${java[@]}" LettuceStory
    story Java '' "${java[@]}" RedissonStory
    story Java 3 "${java[@]}" RedissonStory
}

export TLS=
for tool in go python3 redis-cli openssl; do
    has "$tool" || fail "$tool is not installed"
done
: >"$dir/stderr"
certificates
tls_port=$(free_port)
for which in 0 1 2; do
    ports[$which]=$(free_port)
    serve "$which"
done
python3 "$here/raw.py" "${ports[0]}"

table=clients columns=10
row client speaks "a decision by" "${features[@]:1}" quiet
row --- --- --- --- --- --- --- --- --- ---
for language in go node python php ruby c rust java; do "${language}_clients"; done

table=tools columns=2
row tool "works with"
row --- ---
. "$here/tools.sh"

for which in 0 1 2; do end "$which"; done
[ ! -s "$dir/stderr" ] || fail "the server complained: $(cat "$dir/stderr")"
cat "$dir/clients" "$dir/tools"
if [ "${2:-}" = --write ]; then
    { echo; echo "Run on $(date '+%-d %B %Y'):"; echo; cat "$dir/clients"; echo; cat "$dir/tools"; echo; } >"$dir/written"
    sed -i -e '/^<!-- clients:/,/^<!-- end -->/{/^<!--/!d}' -e "/^<!-- clients:/r $dir/written" "$docs"
fi
for language in Go Node.js Python; do
    [ -n "${ran[$language]:-}" ] || fail "$language did not run"
done
