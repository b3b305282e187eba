# Functions for scripts that test with a server of a newer distribution of Debian than the system's: a redis-server or a
# valkey-server. They are downloaded with their libraries into the directory $dir, and not installed. The script that sources
# this file defines missing, which is called with the reason if there is no such server, and $mirror, which may name an archive.

# archives prints the addresses of those archives of Debian from which the system installs packages.
archives() {
    if [ -n "$mirror" ]; then
        echo "$mirror"
        return
    fi
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
        sed -n -e 's/^deb  *\(\[[^]]*\]  *\)\?\([^ ]*\/debian\)\/\{0,1\} .*/\2/p' -e 's/^URIs: *\([^ ]*\/debian\)\/\{0,1\} *$/\1/p' |
        sort -u
}

# apt runs a program of apt with a separate state, in which no package is installed.
apt() {
    local program=$1
    shift
    "$program" -q -o Dir::Etc::SourceList="$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$dir/lists" \
        -o Dir::State::Status="$dir/status" -o Dir::Cache="$dir/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none \
        -o Acquire::Retries=2 -o Acquire::http::Timeout=20 -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}

# fetch downloads a server and its libraries from distributions, and unpacks them: fetch name-of-the-server
# package-with-the-program oldest-version distributions...
fetch() {
    local server=$1 tools=$2 oldest=$3 keys=/usr/share/keyrings/debian-archive-keyring.gpg version libraries tool
    shift 3
    for tool in apt-get apt-cache dpkg; do
        command -v "$tool" >/dev/null || missing "$tool, which is needed to download a $server, is not installed"
    done
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial" "$dir/packages" "$dir/tree"
    touch "$dir/status"
    for address in $(archives); do
        printf "deb [signed-by=$keys] $address %s main\n" "$@"
    done >"$dir/sources.list"
    [ -s "$dir/sources.list" ] || missing "the system does not install packages from an archive of Debian"
    [ -f "$keys" ] || missing "the keys of the archive are not installed ($keys)"
    apt apt-get update >"$dir/log" 2>&1 || missing "cannot reach the archive: $(tail -n 1 "$dir/log")"
    version=$(apt apt-cache madison "$server" | sed 's/^[^|]*| *\([^ |]*\).*/\1/' | sort -V | tail -n 1)
    [ -n "$version" ] && dpkg --compare-versions "${version#*:}" ge "$oldest" || missing "the archive has no $server of version $oldest or later${version:+, only $version}"
    libraries=$(apt apt-cache show "$tools=$version" | sed -n 's/^Depends: //p' | tr ',' '\n' | sed -n 's/^ *\(lib[^ ]*\).*/\1/p')
    libraries=$(apt apt-cache depends --recurse --important $libraries | sed -n 's/^\(lib[^ ]*\|zlib1g\)$/\1/p' | sort -u)
    (cd "$dir/packages" && apt apt-get download "$tools=$version" "$server=$version" $libraries) >"$dir/log" 2>&1 ||
        missing "cannot download the packages: $(tail -n 1 "$dir/log")"
    for package in "$dir"/packages/*.deb; do
        dpkg -x "$package" "$dir/tree"
    done
}

# wrap writes a script, $dir/name-of-the-server, that runs the unpacked server with its own loader and libraries, which are
# newer than those of the system.
wrap() {
    local server=$1 loader libraries
    loader=$(find "$dir/tree" -name 'ld-linux*.so.*' | head -n 1)
    libraries=$(dirname "$(find "$dir/tree" -name 'libc.so.*' | head -n 1)")
    printf '#!/bin/sh\nexec %s --argv0 %s --library-path %s %s "$@"\n' \
        "$loader" "$server" "$libraries" "$(realpath "$dir/tree/usr/bin/$server")" >"$dir/$server"
    chmod +x "$dir/$server"
}
