#!/usr/bin/env bash
# Runs the two commands of README.md, the one that starts the server and the one that tests everything, in a Debian system of
# its own on which only Go and git are installed:
#     test/fresh/run.sh            both
#     test/fresh/run.sh run        the server alone
#     test/fresh/run.sh test ...   the tests alone, or those targets: test vet
# It needs root, debootstrap, a Debian mirror and Linux, and tests the last commit. Go is that of this machine.
set -euo pipefail
cd "$(dirname "$0")/../.."
fail() { echo "test/fresh/run.sh: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || exec sudo env "PATH=$PATH" "$0" "$@"

if [ "${FRESH_IN_NAMESPACES:-}" != yes ]; then
    # What is mounted, and every process that is left, ends with this script.
    FRESH_IN_NAMESPACES=yes exec unshare --mount --pid --fork --kill-child "$0" "$@"
fi

# The commands are lines of their own in README.md.
command_in_readme() { # pattern
    local found
    found=$(sed -n "s/^    \($1\)\$/\1/p" README.md)
    [ "$(wc -l <<<"$found")" = 1 ] && [ -n "$found" ] || fail "README.md has not one command like '$1'"
    echo "$found"
}
start=$(command_in_readme 'go run \.\/cmd\/cellserver')
ask=$(command_in_readme 'go run \.\/cmd\/cellserver cli .*')
test=$(command_in_readme 'test\/.*')

base=bin/tools/fresh.tar
if [ ! -e "$base" ]; then
    echo 'fetching a minimal Debian, git, and authorities for HTTPS'
    mkdir -p "${base%/*}"
    fetched=$(mktemp -d)
    debootstrap --variant=minbase --include=git,ca-certificates bookworm "$fetched" >"$fetched.log" 2>&1 ||
        { tail "$fetched.log"; rm -rf "$fetched" "$fetched.log"; fail 'debootstrap failed'; }
    tar -cf "$base.new" -C "$fetched" . && mv "$base.new" "$base"
    rm -rf "$fetched" "$fetched.log"
fi

root=$(mktemp -d)
clean() { # never removes what is mounted: it is on other file systems
    for mounted in proc sys dev; do umount -R -l "$root/$mounted" || :; done
    rm -rf --one-file-system "$root"
}
tar -xf "$base" -C "$root"
mount --make-rprivate /
trap clean EXIT
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
cp -a "$(go env GOROOT)" "$root/usr/local/go"
cp --dereference /etc/resolv.conf /etc/hosts "$root/etc/"
git clone -q . "$root/src"

# The network of this machine may need authorities and addresses of its own.
kept=()
for name in http_proxy https_proxy no_proxy GOPROXY GOSUMDB; do
    [ -z "${!name:-}" ] || kept+=("$name=${!name}")
done
if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
    cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/"
    chroot "$root" update-ca-certificates >/dev/null
    kept+=(NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt PIP_CERT=/etc/ssl/certs/ca-certificates.crt)
fi

# The system becomes the root of a mount namespace. In a chroot, a process cannot have a user namespace of its own, which
# tests need, and a new machine allows.
inside() { # command: runs it as a newcomer types it
    unshare --mount sh -c 'mount --rbind "$0" "$0" && cd "$0" && pivot_root . mnt && umount -l mnt && exec "$@"' "$root" \
        env -i PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        "${kept[@]}" bash -c "cd /src && $1"
}
inside true || fail 'no command can be run in the new system'
for program in make gcc curl redis-server; do
    ! inside "command -v $program" || fail "$program is installed: this is no fresh system"
done

run() {
    echo "== $start"
    inside "exec $start" >"$root/log" 2>&1 &
    local server=$!
    until grep -q 'Ready to accept connections' "$root/log"; do
        kill -0 $server 2>/dev/null || { cat "$root/log"; fail 'the server has ended'; }
        sleep 0.2
    done
    echo "== $ask"
    [ "$(inside "$ask" | tr '\n' ' ')" = '0 16 15 -1 2 ' ] || fail 'no decision'
    inside "exec $start cli shutdown" >/dev/null 2>&1 || : # the connection ends without a reply
    wait $server || { cat "$root/log"; fail 'the server did not end well'; }
}

case ${1:-} in
'') run; echo "== $test"; inside "$test" ;;
run) run ;;
test) echo "== $test ${*:2}"; inside "$test ${*:2}" ;;
*) fail "unknown part $1" ;;
esac
echo 'the commands of README.md work on a fresh system'
