#!/usr/bin/env bash
# Installs a package in a Debian system of its own, as Debian or as a system with rpm does, runs the server there, installs the
# package once more, and removes it.
#     test/release/install.sh FILE.deb
#     test/release/install.sh FILE.rpm
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
package=$(realpath "$1")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() { echo "test/release/install.sh: $(basename "$package"): $*" >&2; exit 1; }

base=$top/bin/tools/debian.tar
fetch() { # a minimal Debian, kept as an archive
    [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null || return
    [ -e "$base" ] && return
    echo 'fetching a minimal Debian'
    mkdir "$root/fetched"
    if ! debootstrap --variant=minbase stable "$root/fetched" >"$root/fetch.log" 2>&1; then
        tail "$root/fetch.log"
        rm -rf "$root/fetched" "$root/fetch.log"
        return 1
    fi
    rm -rf "$root"/fetched/var/cache/apt/* "$root"/fetched/var/lib/apt/lists/*
    tar -cf "$base.new" -C "$root/fetched" . && mv "$base.new" "$base"
    rm -rf "$root/fetched" "$root/fetch.log"
}
installs() { # also upgrades
    case $package in
    *.deb) chroot "$root" dpkg -i /package ;;
    *.rpm) rpm --root "$root" --nodeps --replacepkgs -U "$root/package" ;; # its dependencies are in the database of dpkg
    esac
}
removes() {
    case $package in
    *.deb) chroot "$root" dpkg -r cellserver ;;
    *.rpm) rpm --root "$root" -e cellserver ;;
    esac
}
# asked compares what the scripts of the package have asked systemd since the last call, sorted: in an upgrade, dpkg and rpm run
# the scripts of the old version and of the new one in another order.
asked() {
    [ "$(sort -u "$root/systemctl.log")" = "$(printf "%s\n" "$@")" ] ||
        { cat "$root/systemctl.log"; fail "systemd was not asked for: $*"; }
    : >"$root/systemctl.log"
}

if fetch && { [[ $package = *.deb ]] || command -v rpm >/dev/null; }; then
    tar -xf "$base" -C "$root"
    enter=(chroot "$root") program=/usr/bin/cellserver
    mkdir -p "$root/run/systemd/system" # systemd seems to run
    printf '#!/bin/sh\necho "$@" >>/systemctl.log\n' >"$root/usr/bin/systemctl"
    chmod +x "$root/usr/bin/systemctl"
    cp "$package" "$root/package"
    installs
    asked daemon-reload 'try-restart cellserver.service'
else
    [ "${RELEASE:-}" != required ] || fail 'it needs root, debootstrap, rpm and a Debian mirror'
    echo 'NOT CHECKED: without root, debootstrap, rpm and a Debian mirror, the package is only unpacked'
    [[ $package = *.deb ]] || exit 0
    dpkg-deb -x "$package" "$root"
    enter=() program=$root/usr/bin/cellserver
fi

"${enter[@]}" "$program" --version
for file in /usr/lib/systemd/system/cellserver.service /etc/default/cellserver /usr/share/man/man1/cellserver.1.gz \
    /usr/share/bash-completion/completions/cellserver /usr/share/zsh/site-functions/_cellserver \
    /usr/share/fish/vendor_completions.d/cellserver.fish /usr/share/doc/cellserver/copyright; do
    [ "$(stat -c '%a %u' "$root$file")" = '644 0' ] || fail "$file: mode and owner are $(stat -c '%a %u' "$root$file")"
done
grep -q '^ExecStart=/usr/bin/cellserver$' "$root/usr/lib/systemd/system/cellserver.service" || fail 'the unit starts another program'
if command -v systemd-analyze >/dev/null; then
    systemd-analyze security --offline=yes --threshold=20 "$root/usr/lib/systemd/system/cellserver.service" | tail -n 1
fi

mkdir -p "$root/run/test"
socket=/run/test/s
[ "${#enter[@]}" -gt 0 ] || socket=$root$socket
: >"$root/log"
"${enter[@]}" "$program" --port 0 --unixsocket "$socket" --dir "${socket%/s}/keys" >"$root/log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || :; rm -rf "$root"' EXIT
for _ in $(seq 600); do
    grep -q Ready "$root/log" && break
    kill -0 "$server" 2>/dev/null || { cat "$root/log"; fail 'the server has ended'; }
    sleep 0.1
done
[ "$("${enter[@]}" "$program" cli -s "$socket" CL.THROTTLE key 15 30 60 | tr '\n' ' ')" = '0 16 15 -1 2 ' ] || fail 'no decision'
kill "$server"
wait "$server" || { cat "$root/log"; fail 'the server did not end well'; }

if [ "${#enter[@]}" -gt 0 ]; then
    installs
    asked daemon-reload 'try-restart cellserver.service'
    echo 'CELLSERVER_PORT=7000' >>"$root/etc/default/cellserver"
    removes
    asked daemon-reload 'disable --now cellserver.service'
    [ ! -e "$root/usr/bin/cellserver" ] || fail 'the program is still there after the removal'
    grep -q CELLSERVER_PORT=7000 "$root"/etc/default/cellserver* || fail 'the removal took the configuration'
    if [[ $package = *.deb ]]; then
        chroot "$root" dpkg -P cellserver
        [ ! -e "$root/etc/default/cellserver" ] || fail 'the purge left the configuration'
    fi
fi
echo "$(basename "$package"): installed, run and removed"
