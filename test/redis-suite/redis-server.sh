#!/usr/bin/env bash
# Starts cellserver ($CELLSERVER) in place of redis-server, where the suite starts servers itself. The argument is a
# configuration file: its settings become the options of the same names, if cellserver has them, and cellserver runs in the
# directory that the file names. If the arguments are options instead, they are passed on.
set -eu

if [[ ${1:-} == --* ]]; then exec "$CELLSERVER" "$@"; fi
echo " PID: $$" # the suite waits for this line; cellserver will replace this process
options=$("$CELLSERVER" --help | grep -o -- '^ *--[a-z-]*')
args=()
dir=.
while read -r name value; do
    for quote in '"' "'"; do
        if [[ $value == "$quote"*"$quote" ]]; then value=${value:1:-1}; fi
    done
    case $name in
    dir) dir=$value ;; # only the working directory: the suite's files would not be loaded from there
    save | appendonly) ;; # both need --dir
    *) if grep -qx -- " *--$name" <<<"$options"; then args+=("--$name" "$value"); fi ;;
    esac
done <"$1"
cd "$dir"
exec "$CELLSERVER" "${args[@]}" 2>&1 # Redis logs to standard output, where the suite waits for a line
