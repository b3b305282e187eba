#!/usr/bin/env bash
# Tests everything, on a Debian or Ubuntu on which only Go and git are installed: installs the programs that the tests need,
# with apt and as root, and runs make check, or other targets:
#     test/all.sh
#     test/all.sh soak FOR=30m
# What is installed already is left as it is. On other systems, install what CONTRIBUTING.md names, and run make check.
set -euo pipefail
cd "$(dirname "$0")/.."

# Packages are installed only for missing programs. A Node.js from another source than Debian includes npm, and Debian's npm
# conflicts with it.
packages=()
need() { # packages, programs...
  local program
  for program in "${@:2}"; do
    command -v "$program" >/dev/null || { read -ra more <<<"$1"; packages+=("${more[@]}"); return; }
  done
}
need 'make' make
need 'gcc libc6-dev' gcc # the race detector needs it for linking
need 'curl' curl
need 'redis-server' redis-server
need 'redis-tools' redis-cli redis-benchmark
need 'python3 python3-venv' python3
need 'nodejs' node
need 'npm' npm
need 'iproute2' ip
need 'tcl' tclsh
need 'openssl' openssl
need 'zsh' zsh
need 'fish' fish
need 'groff' groff
need 'prometheus' prometheus promtool
need 'debootstrap' debootstrap
need 'rpm' rpm
command -v google-chrome >/dev/null || need 'chromium' chromium # opens the page
need 'nginx' nginx
need 'haproxy' haproxy
need 'caddy' caddy
[ -e /etc/ssl/certs/ca-certificates.crt ] || packages+=(ca-certificates) # the image has them
python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
command -v go >/dev/null || { echo "test/all.sh: go is not installed; go.mod names the version" >&2; exit 1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
if [ "${#packages[@]}" -gt 0 ]; then
  command -v apt-get >/dev/null || { echo "test/all.sh: install what provides these packages of Debian: ${packages[*]}" >&2; exit 1; }
  echo "test/all.sh: installing ${packages[*]}"
  as_root apt-get update
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y "${packages[@]}"
fi
if [ "$#" = 0 ]; then set -- check; fi
make "$@"
