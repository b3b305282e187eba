#!/usr/bin/env bash
# Redis's own tests against cellserver: test/redis-suite/run.sh path/to/cellserver [options of main.go]
# Fetches the source of Redis 7.0.15 from the archive that the system itself installs from, for its tests: nothing of it is
# built, and nothing stays. REDIS_SOURCE=directory takes one that is there. Needs tclsh, redis-server, and apt to fetch with.
set -eu

binary=$(realpath "${1:?usage: $0 path/to/cellserver [options]}")
shift
cd "$(dirname "$(realpath "$0")")/../.."
version=7.0.15
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# sources turns what the system installs from into where the sources of it are: its own configuration stays as it is.
sources() {
    local file
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ ! -f "$file" ] || sed -n 's/^deb /deb-src /p' "$file" >"$dir/parts/$(basename "$file" .list).list"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [ ! -f "$file" ] || sed 's/^Types:.*/Types: deb-src/' "$file" >"$dir/parts/$(basename "$file")"
    done
}

fetch() {
    local name="redis_$version.orig.tar.gz" found
    local options=(-qq -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$dir/parts" -o "Dir::State::Lists=$dir/lists"
        -o "Dir::Cache=$dir/cache" -o APT::Sandbox::User=root)
    mkdir -p "$dir/parts" "$dir/lists/partial" "$dir/cache/archives/partial"
    sources
    apt-get "${options[@]}" update || true # an archive that has no sources is no harm: whether Redis's are there is seen below
    found=$(apt-cache "${options[@]}" showsrc redis | sed -n "s/^Version: \(.*[:]\)\?\($version-.*\)/\1\2/p" | sort -V | tail -n 1)
    [ -n "$found" ] || fail "the system's archive has no source of Redis $version; REDIS_SOURCE=directory names one"
    (cd "$dir" && apt-get "${options[@]}" source --download-only "redis=$found" >/dev/null)
    mkdir "$dir/redis"
    tar -xzf "$dir/$name" -C "$dir/redis" --strip-components=1
}

for tool in tclsh redis-server go; do
    command -v "$tool" >/dev/null || fail "$tool is not installed"
done
if [ -z "${REDIS_SOURCE:-}" ]; then
    command -v apt-get >/dev/null || fail "there is no apt-get; REDIS_SOURCE=directory names the source of Redis $version"
    fetch
    REDIS_SOURCE=$dir/redis
fi
go build -o "$dir/redis-suite" ./test/redis-suite
"$dir/redis-suite" -source "$REDIS_SOURCE" -server "$binary" "$@"
