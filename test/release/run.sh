#!/usr/bin/env bash
# Builds a release from the last commit, twice, and installs its packages in a Debian system of its own:
#     test/release/run.sh         linux/amd64 alone, as make check does
#     test/release/run.sh all     all platforms
# The two builds must give the same bytes.
# Without root, debootstrap, rpm and a Debian mirror, the packages are unpacked in place of being installed; RELEASE=required fails
# then.
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD
packaging/tools.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ "${1:-}" = all ] || export LINUX_AMD64_ONLY=yes
for run in first second; do
    git clone -q --no-tags . "$work/$run"
    [ $run = first ] || chmod -R go-rwx "$work/$run"
    echo "building the release: $run time"
    (cd "$work/$run" && PATH="$top/bin/tools:$PATH" goreleaser release --snapshot --clean \
        --skip=publish,announce) >"$work/$run.log" 2>&1 || { cat "$work/$run.log"; exit 1; }
    (cd "$work/$run/dist" && sha256sum --check --strict --quiet SHA256SUMS)
done
# An SBOM names itself by a random identifier and the time, so the two differ.
for run in first second; do
    (cd "$work/$run/dist" && sha256sum ./*.tar.gz ./*.deb ./*.rpm) >"$work/$run.sums"
done
diff "$work/first.sums" "$work/second.sums"
echo "the same bytes: $(wc -l <"$work/first.sums") files"
dist=$work/first/dist
grep -q '"name": *"github.com/spf13/pflag"' "$dist"/*linux-amd64*.sbom.json || { echo 'the SBOM names no module' >&2; exit 1; }

for package in "$dist"/cellserver_*_amd64.deb "$dist"/cellserver_*.rpm; do
    "$top/test/release/install.sh" "$package"
done
rm -rf "$top/dist"
mv "$dist" "$top/dist"
