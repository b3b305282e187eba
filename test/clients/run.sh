#!/usr/bin/env bash
# Tests Redis clients with their default settings: test/clients/run.sh path/to/cellserver [--write]
#
# Each program plays the same scenario with its client: a decision, counters, a pipeline, a
# transaction, errors, database 2, and a restart of the server. It reads these variables:
#
#     PORT      the port of the server
#     PROTOCOL  2 or 3, or empty for the client's default
#     TLS       if PORT is a port for TLS: a directory with ca.crt, client.crt and client.key
#
# It prints "client NAME VERSION", then "ok FEATURE" for each feature that works. It prints "restart"
# to have the server restarted, and waits for a line on its standard input; until then, it must not
# write to its standard error. The program is then run again through limiters/forgetful.py, a proxy
# that loses one decision of the pipeline, and the program must notice that.
#
# installed.sh installs the clients; CLIENTS=newest selects the newest version of each. The clients
# for PHP, Ruby and C, and Debian's redis-py, are used where they are installed. What cannot be run
# is reported as "not run", but Go, Node.js and Python have to run. --write writes the tables into
# docs/compatibility.md.
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
    fail "waited a minute for a line that matches '$2', but got: $(cat "$1")"
}

# certificates creates an authority, and certificates for the server and the clients.
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
    ) >"$dir/log" 2>&1 || fail "cannot create certificates: $(cat "$dir/log")"
}

ports=()
start_server() { # index
    : >"$dir/log.$1"
    local tls=()
    [ "$1" != 0 ] || tls=(--tls-port "$tls_port" --tls-cert-file "$dir/tls/server.crt" --tls-key-file "$dir/tls/server.key"
        --tls-ca-cert-file "$dir/tls/ca.crt")
    "$binary" --port "${ports[$1]}" "${tls[@]}" 2>"$dir/log.$1" &
    servers[$1]=$!
    await "$dir/log.$1" 'Ready to accept connections'
}
stop_server() { # index
    local status=0
    kill -TERM "${servers[$1]}"
    wait "${servers[$1]}" || status=$?
    [ "$status" = 0 ] || fail "exit status $status after SIGTERM: $(cat "$dir/log.$1")"
    grep -v level=INFO "$dir/log.$1" >>"$dir/warnings" || true
}

# restart restarts the server. Before that, it sets resp to the protocol of the program's connections
# as the server reports it, and stderr to what the program has written to its standard error.
restart() {
    resp=$(redis-cli -p "${ports[0]}" CLIENT LIST | sed -n '/cmd=client|list/d; s/.* resp=\([23]\) .*/\1/p' | sort -u | tr -d '\n')
    stderr=$(cat "$dir/client.stderr")
    stop_server 0
    start_server 0
}

# run_program runs a program to its end. It sets name, version, resp, stderr and, for each feature
# that works, an element of cells.
run_program() { # port, program...
    local word rest status=0
    name='' version='' resp='' stderr='' cells=()
    for port in "${ports[@]}"; do redis-cli -p "$port" FLUSHALL >/dev/null; done
    rm -f "$dir/to" "$dir/from"
    mkfifo "$dir/to" "$dir/from"
    exec 4<>"$dir/to"
    (cd "$dir" && PORT=$1 exec timeout 120 "${@:2}") <"$dir/to" >"$dir/from" 2>"$dir/client.stderr" 4>&- &
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

# scenario runs a program, which must succeed, and once more with a lost decision, which it must notice.
declare -A cells ran
scenario() { # language, protocol or "" for the default, program...
    local language=$1 feature words=()
    export PROTOCOL=$2
    shift 2
    run_program "$([ -n "$TLS" ] && echo "$tls_port" || echo "${ports[0]}")" "$@" ||
        fail "$*, protocol ${PROTOCOL:-by default}: $name $version failed after ${!cells[*]}: $(cat "$dir/client.stderr")"
    [ "${#cells[@]}" = "${#features[@]}" ] || fail "$*: reported only ${!cells[*]}"
    [ -z "$stderr" ] || fail "$*, protocol ${PROTOCOL:-by default}, wrote to its standard error: $stderr"
    [[ $resp = [23] && $resp = "${PROTOCOL:-$resp}" ]] || fail "$* used RESP$resp, not RESP$PROTOCOL"
    for feature in "${features[@]}"; do
        echo "ok ${name/ /-}-$version-resp$resp${TLS:+-tls} $feature${cells[$feature]:+ ${cells[$feature]}}"
        words+=("${cells[$feature]:-ok}")
    done
    echo "ok ${name/ /-}-$version-resp$resp${TLS:+-tls} quiet"
    words[0]="\`${words[0]}\`"
    row "$language: $name $version${TLS:+, over TLS}" "RESP$resp$([ -n "$PROTOCOL" ] || echo ', by default')" "${words[@]}" ok
    ran[$language]=yes
    [ -n "$TLS" ] || check_loss_is_noticed "$@"
}

# over_tls runs the scenario over TLS, with certificates on both sides.
over_tls() { # language, protocol or "" for the default, program...
    TLS=$dir/tls scenario "$@"
}

# check_loss_is_noticed runs a program through forgetful.py, which redirects the fifth CL.THROTTLE, in
# the pipeline, to another key. The program must stop there.
check_loss_is_noticed() { # program...
    : >"$dir/forgetful.port"
    python3 "$here/limiters/forgetful.py" "${ports[0]}" CL.THROTTLE 5 >"$dir/forgetful.port" &
    others=($!)
    await "$dir/forgetful.port" '[0-9]'
    ! OTHER_PORTS='' run_program "$(cat "$dir/forgetful.port")" "$@" ||
        fail "$* does not notice that a decision of its pipeline was lost"
    [ "${#cells[@]}${cells[counters]-no}" = 2 ] || # those before the pipeline: throttle and counters
        fail "$*, with a lost decision in its pipeline, stopped after ${!cells[*]}: $(cat "$dir/client.stderr")"
    kill "${others[0]}"
    wait "${others[0]}" 2>/dev/null || true
    others=()
}

not_run() { # name, reason
    echo "not run: $1 ($2)"
    local cell words=()
    for ((cell = 0; cell < columns - 2; cell++)); do words+=(''); done
    row "$1" "not run: $2" "${words[@]}"
}

go_clients() {
    cp -r "$here/go" "$dir/source"
    ! newest || (cd "$dir/source" && go get -u ./... && go mod tidy) || fail "cannot update the Go clients to their newest versions"
    (cd "$dir/source" && go vet ./... && go build -o "$dir/go/" ./...) || fail "cannot build the Go programs"
    scenario Go '' go/goredis client
    scenario Go 2 go/goredis client
    over_tls Go '' go/goredis client
    scenario Go '' go/goredis universal
    OTHER_PORTS="${ports[1]} ${ports[2]}" scenario Go '' go/goredis ring
    scenario Go '' go/redigo
    scenario Go '' go/rueidis
    scenario Go 2 go/rueidis
}

node_clients() {
    has node npm || { not_run Node.js "node and npm are not installed"; return; }
    installed node || { not_run Node.js "npm: $(head -1 "$clients/node.log")"; return; }
    cp "$here"/node/*.mjs "$dir"
    ln -s "$clients/node/node_modules" "$dir"
    scenario Node.js '' node node-redis.mjs redis
    scenario Node.js 2 node node-redis.mjs redis
    over_tls Node.js '' node node-redis.mjs redis
    scenario Node.js '' node node-redis.mjs redis5
    scenario Node.js 3 node node-redis.mjs redis5
    scenario Node.js '' node ioredis.mjs ioredis
    scenario Node.js 2 node ioredis.mjs ioredis
    scenario Node.js '' node ioredis.mjs ioredis5
}

python_clients() {
    installed python || { not_run Python "cannot install redis-py: $(tail -1 "$clients/python.log")"; return; }
    scenario Python '' "$clients/python/bin/python" "$here/python.py"
    scenario Python 2 "$clients/python/bin/python" "$here/python.py"
    over_tls Python '' "$clients/python/bin/python" "$here/python.py"
    if /usr/bin/python3 -c 'import redis' 2>/dev/null; then
        scenario Python '' /usr/bin/python3 "$here/python.py"
    else
        not_run "Python: Debian's redis-py" "python3-redis is not installed"
    fi
}

php_clients() {
    has php || { not_run PHP "php is not installed"; return; }
    cp "$here"/php/*.php "$dir"
    if php -m | grep -qx redis; then scenario PHP '' php phpredis.php; else not_run "PHP: phpredis" "php has no extension redis"; fi
    if (cd "$dir" && php -r 'exit(stream_resolve_include_path("Predis/Autoloader.php") ? 0 : 1);'); then
        scenario PHP '' php predis.php
    else
        not_run "PHP: Predis" "Predis is not installed"
    fi
}

ruby_clients() {
    has ruby && ruby -e 'require "redis"' 2>/dev/null || { not_run "Ruby: redis-rb" "ruby and its redis are not installed"; return; }
    scenario Ruby '' ruby "$here/ruby.rb"
}

c_clients() {
    has cc && cc -Wall -Wextra -Werror -o "$dir/hiredis" "$here/c/hiredis.c" -lhiredis >"$dir/log" 2>&1 ||
        { not_run "C: hiredis" "cc or hiredis is not installed"; return; }
    scenario C '' ./hiredis
}

rust_clients() {
    has cargo || { not_run "Rust: redis-rs" "cargo is not installed"; return; }
    installed rust || { not_run "Rust: redis-rs" "cargo: $(tail -1 "$clients/rust.log")"; return; }
    VERSION=$(sed -n '/^name = "redis"$/{n; s/version = "\(.*\)"/\1/p}' "$clients/rust/Cargo.lock")
    export VERSION
    scenario Rust '' "$clients/rust/target/debug/clients"
    scenario Rust 3 "$clients/rust/target/debug/clients"
}

java_clients() {
    has java javac mvn || { not_run Java "a JDK and mvn are not installed"; return; }
    installed java || { not_run Java "Maven: $(tail -1 "$clients/java.log")"; return; }
    javac -nowarn -proc:none -cp "$clients/java/lib/*" -d "$dir/java" "$here"/java/*.java 2>"$dir/log" || fail "$(cat "$dir/log")"
    local java=(java -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$clients/java/lib/*:java")
    scenario Java '' "${java[@]}" JedisScenario
    scenario Java 2 "${java[@]}" JedisScenario
    scenario Java '' "${java[@]}" LettuceScenario
    scenario Java 2 "${java[@]}" LettuceScenario
    scenario Java '' "${java[@]}" RedissonScenario
    scenario Java 3 "${java[@]}" RedissonScenario
}

export TLS=
for tool in go python3 redis-cli openssl; do
    has "$tool" || fail "$tool is not installed"
done
: >"$dir/warnings"
certificates
tls_port=$(free_port)
for which in 0 1 2; do
    ports[$which]=$(free_port)
    start_server "$which"
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

for which in 0 1 2; do stop_server "$which"; done
[ ! -s "$dir/warnings" ] || fail "the server logged warnings: $(cat "$dir/warnings")"
cat "$dir/clients" "$dir/tools"
if [ "${2:-}" = --write ]; then
    { echo; echo "Run on $(date '+%-d %B %Y'):"; echo; cat "$dir/clients"; echo; cat "$dir/tools"; echo; } >"$dir/written"
    sed -i -e '/^<!-- clients:/,/^<!-- end -->/{/^<!--/!d}' -e "/^<!-- clients:/r $dir/written" "$docs"
fi
for language in Go Node.js Python; do
    [ -n "${ran[$language]:-}" ] || fail "$language was not run"
done
