#!/usr/bin/env bash
# Counts the user instructions of a CL.THROTTLE in a session, with one call and with 64 calls in flight. Three calls are
# compared with it: a CL.TAKE of a policy with that limit may cost a fifth more, a CL.ALL of that limit and another may
# cost three times as much, and a CL.THROTTLE with an ID of its own, with 64 calls in flight, twice as much:
#
#   bench/instructions.sh              # of this tree
#   bench/instructions.sh COMMIT       # CL.THROTTLE also of that commit, and the difference
#   bench/instructions.sh --dir        # 64 in flight, without --dir, and with --dir and a pass after a million calls
#   bench/instructions.sh --holds      # 64 in flight: HOLD and SETTLE cost 2.4 times two calls with ID, which is 0.8 of what
#                                      # these cost when the aim was 1.6: see ARCHITECTURE.md
#   bench/instructions.sh --notify     # 64 in flight: CL.TAKE of a policy with notify, also with its history, may cost
#                                      # 2 % more than CL.TAKE of a policy without notify
#   bench/instructions.sh --plan       # 64 in flight: CL.TAKE of a subject with a plan may cost 5 % more than with another
#                                      # standing; also of one without, while no subject has one, and while another has
#
# Unlike times, the counts repeat on a busy machine: to about 0.1 %. Each is the difference between a run of 192,000
# calls and one of 64,000 (BenchmarkSession, BenchmarkTake, BenchmarkAll and BenchmarkID, valgrind's callgrind), so that
# the start of the process does not count. Record the profile again (make pgo) before comparing a change on the hot path:
# the compiler follows the profile by the names and the lines of functions.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
command -v valgrind >/dev/null || { echo "bench/instructions.sh: valgrind is not installed" >&2; exit 1; }

dir=$(mktemp -d)
trap 'git worktree remove --force "$dir/before" 2>/dev/null || true; rm -rf "$dir"' EXIT

run() { # binary, benchmark, calls
    # Callgrind cannot follow the signals by which Go preempts goroutines.
    GODEBUG=asyncpreemptoff=1 GOGC=off GOMAXPROCS=1 valgrind --tool=callgrind --callgrind-out-file=/dev/null "$1" \
        -test.run '^$' -test.bench "$2\$" -test.benchtime "${3}x" 2>&1 |
        sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

count() { # checkout, benchmark, calls, more calls
    (cd "$1" && go test -c -pgo="$PWD/cmd/cellserver/default.pgo" -o "$dir/bench" ./internal/commands)
    local few many
    few=$(cd "$1/internal/commands" && run "$dir/bench" "$2" "$3")
    many=$(cd "$1/internal/commands" && run "$dir/bench" "$2" "$4")
    [ -n "$few" ] && [ -n "$many" ] || { echo "bench/instructions.sh: valgrind counted nothing" >&2; return 1; }
    echo $(((many - few) * 1000 / ($4 - $3)))
}

show() { # thousandths of an instruction
    printf '%d.%01d' $(($1 / 1000)) $(($1 % 1000 / 100))
}

difference() { # from, to
    awk "BEGIN { printf \"%+.2f %%\", ($2 - $1) * 100 / $1 }"
}

bound() { # count, the other count, how many times as large it may be
    awk "BEGIN { exit !($1 <= $2 * $3) }" || { echo "bench/instructions.sh: more than $3 times as many" >&2; exit 1; }
}

if [ "${1-}" = --dir ]; then
    without=$(count . Session/P=64 1048576 2097152)
    with=$(count . Tracked/P=64 1048576 2097152)
    printf 'CL.THROTTLE, 64 in flight, with --dir: %s instructions, %s without: %s\n' "$(show "$with")" \
        "$(show "$without")" "$(difference "$without" "$with")"
    exit
fi
if [ "${1-}" = --holds ]; then
    ids=$(count . BenchmarkHolds/ID/P=64 6400 19200)
    holds=$(count . BenchmarkHolds/holds/P=64 6400 19200)
    printf 'HOLD and SETTLE, 64 in flight: %s instructions, %s times those of two CL.FIXED with ID\n' "$(show "$holds")" \
        "$(awk "BEGIN { printf \"%.2f\", $holds / $ids }")"
    exit
fi
if [ "${1-}" = --notify ]; then
    without=$(count . BenchmarkNotify/without/P=64 64000 192000)
    for case in low high history; do
        with=$(count . "BenchmarkNotify/$case/P=64" 64000 192000)
        printf 'CL.TAKE, 64 in flight, with notify, %s: %s instructions, %s without: %s\n' "$case" "$(show "$with")" \
            "$(show "$without")" "$(difference "$without" "$with")"
        bound "$with" "$without" 1.02
    done
    exit
fi
if [ "${1-}" = --plan ]; then
    refused=$(count . BenchmarkTakeStanding/refused/P=64 64000 192000)
    plan=$(count . BenchmarkTakeStanding/plan/P=64 64000 192000)
    printf 'CL.TAKE, 64 in flight, of a subject with a plan: %s instructions, %s of one with another standing: %s\n' \
        "$(show "$plan")" "$(show "$refused")" "$(difference "$refused" "$plan")"
    bound "$plan" "$refused" 1.05
    none=$(count . BenchmarkTakeStanding/none/P=64 64000 192000)
    other=$(count . BenchmarkTakeStanding/other/P=64 64000 192000)
    printf 'CL.TAKE, 64 in flight, of a subject without a standing: %s instructions, and %s while another has one: %s\n' \
        "$(show "$none")" "$(show "$other")" "$(difference "$none" "$other")"
    exit
fi
if [ $# -gt 0 ]; then
    git worktree add --quiet --detach "$dir/before" "$1"
fi
for flight in 1 64; do
    after=$(count . "Session/P=$flight" 64000 192000)
    printf 'CL.THROTTLE, %2d in flight: %s instructions' "$flight" "$(show "$after")"
    if [ $# -gt 0 ]; then
        before=$(count "$dir/before" "Session/P=$flight" 64000 192000)
        printf ', %s at %s: %s' "$(show "$before")" "$1" "$(difference "$before" "$after")"
    fi
    echo
    for other in Take All ID; do
        count=$(count . "Benchmark$other/P=$flight" 64000 192000)
        name=CL.${other^^}
        [ "$other" != ID ] || name='CL.THROTTLE with ID'
        printf '%s, %2d in flight: %s instructions, %s times those of CL.THROTTLE\n' "$name" "$flight" \
            "$(show "$count")" "$(awk "BEGIN { printf \"%.2f\", $count / $after }")"
    done
done
