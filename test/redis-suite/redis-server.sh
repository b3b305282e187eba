#!/usr/bin/env bash
# Stands in for src/redis-server where the suite starts servers itself: starts cellserver ($CELLSERVER) with those settings of
# the configuration file that it has an option for, in the directory that it names; or with options that are told to it.
set -eu

if [[ ${1:-} == --* ]]; then exec "$CELLSERVER" "$@"; fi
echo " PID: $$" # which the suite waits for; cellserver takes this process over
options=$("$CELLSERVER" --help | grep -o -- '^ *--[a-z-]*')
args=()
dir=.
while read -r name value; do
    for quote in '"' "'"; do
        if [[ $value == "$quote"*"$quote" ]]; then value=${value:1:-1}; fi
    done
    if grep -qx -- " *--$name" <<<"$options"; then
        args+=("--$name" "$value")
    elif [[ $name == dir ]]; then
        dir=$value
    fi
done <"$1"
cd "$dir"
exec "$CELLSERVER" "${args[@]}"
