#!/usr/bin/env bash
# Runs the tests of Redis against cellserver: test/redis-suite/run.sh path/to/cellserver [options of main.go]
# Downloads the source of Redis 7.0.15, which contains the tests, from the archive from which the system installs packages, into
# a temporary directory. Nothing of it is built. REDIS_SOURCE=directory names a source that is already there. Needs tclsh and
# redis-server, and apt for the download.
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

# sources writes a configuration of apt for the source packages of the archives from which the system installs. It does not
# change the configuration of the system.
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
    apt-get "${options[@]}" update || true # an archive without sources does no harm: the next line checks whether those of Redis are there
    found=$(apt-cache "${options[@]}" showsrc redis | sed -n "s/^Version: \(.*[:]\)\?\($version-.*\)/\1\2/p" | sort -V | tail -n 1)
    [ -n "$found" ] || fail "the archives of the system have no source of Redis $version; REDIS_SOURCE=directory may name one"
    (cd "$dir" && apt-get "${options[@]}" source --download-only "redis=$found" >/dev/null)
    mkdir "$dir/redis"
    tar -xzf "$dir/$name" -C "$dir/redis" --strip-components=1
}

for tool in tclsh redis-server go; do
    command -v "$tool" >/dev/null || fail "$tool is not installed"
done
if [ -z "${REDIS_SOURCE:-}" ]; then
    command -v apt-get >/dev/null || fail "apt-get is not installed; REDIS_SOURCE=directory may name the source of Redis $version"
    fetch
    REDIS_SOURCE=$dir/redis
fi
go build -o "$dir/redis-suite" ./test/redis-suite
"$dir/redis-suite" -source "$REDIS_SOURCE" -server "$binary" "$@"
