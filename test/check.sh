#!/usr/bin/env bash
# Makes each target that is named, whether or not the one before it went well, and says at the end how each of them went:
#     test/check.sh vet test soak
# What failed names its first complaints again there. MAKE is the make to use.
set -u

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
verdicts=()
for part; do
    began=$SECONDS
    echo "== make $part"
    if "${MAKE:-make}" --no-print-directory "$part" 2>&1 | tee "$log"; (exit "${PIPESTATUS[0]}"); then
        said=ok
        ! grep -q 'NOT CHECKED' "$log" || said='ok, but NOT CHECKED: see above'
    else
        said=FAILED
        status=1
    fi
    verdicts+=("$(printf '%-16s %5d s  %s' "$part" $((SECONDS - began)) "$said")")
    [ "$said" != FAILED ] || verdicts+=("$(grep -E '^ *--- FAIL|^FAIL|^panic|FAILED|WARNING: DATA RACE|^make.*Error' "$log" | head -n 20 | sed 's/^/    /')")
done
echo "== make check, $SECONDS s"
printf '%s\n' "${verdicts[@]}"
exit "$status"
