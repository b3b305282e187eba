#!/usr/bin/env bash
# Runs make for each of the targets, even if one of them fails, and prints a summary at the end:
#     test/check.sh vet test
# A word with several targets, separated by spaces, is run at the same time as the words after it. Its output is printed at
# the end:
#     test/check.sh vet 'test-clients soak' test-plain test-transports
# For each target that failed, the summary repeats its first errors. MAKE names the make to use.
set -u

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# The user and the system time of a target, added. CPU time depends less on what else the machine does. Each target has a shell of
# its own for it, because when the targets beside the others end, their time would be counted for the one that runs then.
TIMEFORMAT='%0U + %0S'

run() { # target: runs make, and appends a line to the summary
    local target=$1 log=$dir/$1.log began=$SECONDS result
    echo "== make $target"
    if (time "${MAKE:-make}" --no-print-directory "$target" 2>&1 | tee "$log"; exit "${PIPESTATUS[0]}") 2>"$dir/$target.cpu"; then
        result=ok
        ! grep -q 'NOT CHECKED' "$log" || result='ok, but NOT CHECKED: see above'
    else
        result=FAILED
        : >"$dir/failed"
    fi
    printf '%-16s %5d s %5d CPU s  %s\n' "$target" $((SECONDS - began)) $(($(<"$dir/$target.cpu"))) "$result" \
        >"$dir/$target.result"
    [ "$result" != FAILED ] || grep -E '^ *--- FAIL|^FAIL|^panic|FAILED|WARNING: DATA RACE|^make.*Error' "$log" |
        head -n 20 | sed 's/^/    /' >>"$dir/$target.result"
}

for word; do
    case $word in
    *' '*) (for target in $word; do run "$target"; done) >"$dir/beside.log" 2>&1 & ;;
    *) run "$word" ;;
    esac
done
wait
[ ! -e "$dir/beside.log" ] || cat "$dir/beside.log"
echo "== make check, $SECONDS s"
for word; do
    for target in $word; do cat "$dir/$target.result" || : >"$dir/failed"; done
done
[ ! -e "$dir/failed" ]
