#!/usr/bin/env bash
# Runs make for each of the targets, even if one of them fails, and prints a summary at the end:
#     test/check.sh vet test soak
# For each target that failed, the summary repeats its first errors. MAKE names the make to use.
set -u

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
summary=()
for target; do
    began=$SECONDS
    echo "== make $target"
    if "${MAKE:-make}" --no-print-directory "$target" 2>&1 | tee "$log"; (exit "${PIPESTATUS[0]}"); then
        result=ok
        ! grep -q 'NOT CHECKED' "$log" || result='ok, but NOT CHECKED: see above'
    else
        result=FAILED
        status=1
    fi
    summary+=("$(printf '%-16s %5d s  %s' "$target" $((SECONDS - began)) "$result")")
    [ "$result" != FAILED ] || summary+=("$(grep -E '^ *--- FAIL|^FAIL|^panic|FAILED|WARNING: DATA RACE|^make.*Error' "$log" | head -n 20 | sed 's/^/    /')")
done
echo "== make check, $SECONDS s"
printf '%s\n' "${summary[@]}"
exit "$status"
