# Tests tools that were made for Redis. run.sh sources this file. For each tool, it prints "ok TOOL FEATURE" or "not run".
port=${ports[0]}
checked=

# shows fails unless a command prints what matches a pattern, and nothing on its standard error.
shows() { # tool, feature, pattern, command...
    local printed
    printed=$(timeout 30 "${@:4}" 2>"$dir/client.stderr") || fail "$1 $2: exit status $?: $printed $(cat "$dir/client.stderr")"
    grep -Eq -- "$3" <<<"$printed" || fail "$1 $2: printed $printed, which does not match $3"
    [ ! -s "$dir/client.stderr" ] || fail "$1 $2: wrote to its standard error: $(cat "$dir/client.stderr")"
    echo "ok $1 $2"
    checked+="${checked:+, }\`$2\`"
}

# server_has reports whether the server has a command.
server_has() { [ -n "$(redis-cli -p "$port" COMMAND INFO "$1")" ]; }

# tool writes a row of the table: the features of a tool that were checked since the last row.
tool() { # name, version
    row "$1 $2" "$checked"
    checked=
}

redis_cli() {
    local cli=(redis-cli -p "$port") word
    shows redis-cli 'CL.THROTTLE' '^0 16 15 -1 2 $' bash -c "${cli[*]} CL.THROTTLE user123 15 30 60 1 | tr '\n' ' '"
    shows redis-cli '-3' '^3# "proto" => \(integer\) 3$' "${cli[@]}" -3 --no-raw HELLO
    shows redis-cli '-n 2' '^0$' "${cli[@]}" -n 2 EXISTS user123
    shows redis-cli '--stat' '^keys  *mem  *clients' bash -c "timeout 1 stdbuf -oL ${cli[*]} --stat || true"
    shows redis-cli '--pipe' 'errors: 0, replies: 3' bash -c "printf 'SET text twenty-seven-bytes-in-value\r\nINCR n\r\nCL.THROTTLE b 15 30 60\r\n' | ${cli[*]} --pipe"
    shows redis-cli '--scan' '^b n text user123 $' bash -c "${cli[*]} --scan | sort | tr '\n' ' '"
    shows redis-cli '--bigkeys' 'Biggest string found .*text.* has 27 bytes' "${cli[@]}" --bigkeys
    if server_has memory; then
        shows redis-cli '--memkeys' 'Biggest +string found' "${cli[@]}" --memkeys
    else
        not_run 'redis-cli --memkeys' 'cellserver has no MEMORY USAGE'
    fi
    shows redis-cli '--tls' '^0 16 15 -1 2 $' bash -c "redis-cli -p $tls_port --tls --cacert $dir/tls/ca.crt --cert $dir/tls/client.crt \
        --key $dir/tls/client.key CL.THROTTLE over-tls 15 30 60 1 | tr '\n' ' '"
    shows redis-cli hints 'key max_burst' python3 "$here/hints.py" "${cli[@]}"
    tool redis-cli "$(redis-cli --version | cut -d ' ' -f 2)"
}

redis_benchmark() {
    has redis-benchmark || { not_run redis-benchmark "it is not installed"; return; }
    local benchmark=(redis-benchmark -p "$port" -q -n 2000)
    shows redis-benchmark '-t' 'MSET.*requests per second' "${benchmark[@]}" -t ping,set,get,incr,mset
    shows redis-benchmark '-P 16 -r 100 CL.THROTTLE' 'CL.THROTTLE.*requests per second' \
        "${benchmark[@]}" -P 16 -r 100 CL.THROTTLE k:__rand_int__ 15 30 60 1
    shows redis-benchmark '--tls' 'requests per second' redis-benchmark -p "$tls_port" -q -n 2000 --tls --cacert "$dir/tls/ca.crt" \
        --cert "$dir/tls/client.crt" --key "$dir/tls/client.key" -t incr
    tool redis-benchmark "$(redis-benchmark --version | cut -d ' ' -f 2)"
}

# runs starts a tool that is itself a server. If there is a pattern, it waits until the tool logs a
# line that matches.
runs() { # log, pattern or "", command...
    "${@:3}" >"$1" 2>&1 &
    others=($!)
    [ -z "$2" ] || await "$1" "$2"
}
stops() {
    kill "${others[0]}"
    wait "${others[0]}" 2>/dev/null || true
    others=()
}

# redis_exporter runs as docs/monitoring.md says, with a user that has only the rights given there, and
# must have every metric that the page names.
redis_exporter() {
    has prometheus-redis-exporter || { not_run redis_exporter "it is not installed"; return; }
    local at metric name=redis_exporter page=$here/../../docs/monitoring.md
    at=127.0.0.1:$(free_port)
    bash -c "$(sed -n "s/^ *redis-cli \(ACL SETUSER exporter .*\)/redis-cli -p $port \1/p" "$page")" >/dev/null
    redis-cli -p "$port" GET >/dev/null # one error, so that there is a metric of errors
    runs "$dir/exporter" 'Providing metrics' prometheus-redis-exporter --redis.addr "redis://127.0.0.1:$port" \
        --redis.user exporter --redis.password secret --web.listen-address "$at"
    fetch() { python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())' "http://$at/metrics"; }
    export -f fetch && export at
    shows $name redis_up '^redis_up 1$' bash -c fetch
    shows $name redis_db_keys '^redis_db_keys.db="db0". [1-9]' bash -c fetch
    shows $name redis_instance_info '^redis_instance_info.*role="master"' bash -c fetch
    fetch >"$dir/metrics"
    for metric in $(sed -n '/^## Prometheus/,/^## The log/p' "$page" | grep -o '`redis_[a-z_]*' | tr -d '`' | sort -u); do
        grep -q "^$metric[{ ]" "$dir/metrics" || fail "$name has no $metric, which docs/monitoring.md names"
    done
    stops
    [ -z "$(redis-cli -p "$port" ACL LOG)" ] || fail "$name needs more rights than docs/monitoring.md gives it: $(redis-cli -p "$port" ACL LOG)"
    redis-cli -p "$port" ACL DELUSER exporter >/dev/null
    ! grep -E 'level=(warn|error)' "$dir/exporter" || fail "redis_exporter logged warnings or errors"
    tool $name "$(prometheus-redis-exporter --version 2>&1 | grep -o 'Exporter [^ ]*' | cut -d ' ' -f 2)"
}

haproxy_check() {
    has haproxy || { not_run HAProxy "it is not installed"; return; }
    local front stats
    front=$(free_port) stats=$(free_port)
    cat >"$dir/haproxy.cfg" <<CFG
global
    stats socket ipv4@127.0.0.1:$stats
defaults
    mode tcp
    timeout connect 5s
    timeout client 10s
    timeout server 10s
listen cells
    bind 127.0.0.1:$front
    option redis-check
    server one 127.0.0.1:$port check inter 100ms
CFG
    runs "$dir/haproxy" '' haproxy -db -f "$dir/haproxy.cfg"
    shows HAProxy 'option redis-check' 'L7OK' bash -c \
        "until exec 3<>/dev/tcp/127.0.0.1/$stats && echo show stat >&3 && grep one,.*L7OK <&3; do sleep 0.1; done 2>/dev/null"
    shows HAProxy 'CL.THROTTLE' '^0 16 15 -1 2 $' bash -c "redis-cli -p $front CL.THROTTLE haproxy 15 30 60 1 | tr '\n' ' '"
    stops
    ! grep -E 'ALERT|is DOWN' "$dir/haproxy" || fail "HAProxy logged that the server is down"
    tool HAProxy "$(haproxy -v | sed -n 's/^HAProxy version \([0-9.]*\).*/\1/p')"
}

redis-cli -p "$port" FLUSHALL >/dev/null
redis_cli
redis_benchmark
redis_exporter
haproxy_check
