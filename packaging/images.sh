#!/usr/bin/env bash
# Builds the image of a release for amd64 and arm64, scans the program in each, writes a list of its contents (SBOM), and
# pushes the image, if a repository is named:
#     packaging/images.sh VERSION [REPOSITORY]     such as 1.0.0 ghcr.io/owner/cellserver
# dist/ gets the lists, dist/image/linux_ARCH the files of each image, and dist/image.digest what was pushed. Nothing is
# pushed if the scan finds a vulnerability, or cannot be made.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?packaging/images.sh VERSION [REPOSITORY]}
repository=${2:-}
docker=${DOCKER:-docker}
platforms=linux/amd64,linux/arm64
[ -z "${TOOLS:-}" ] && packaging/tools.sh syft govulncheck
PATH=${TOOLS:-$PWD/bin/tools}:$PATH

rm -rf dist/image dist/image.digest
mkdir -p dist
# Nothing is emulated: the compiler runs on this machine's architecture. Only a builder in a container makes images of
# several platforms at once.
builder=cellserver-release
"$docker" buildx inspect "$builder" >/dev/null 2>&1 || "$docker" buildx create --name "$builder" --driver docker-container >/dev/null
build() { "$docker" buildx build --builder "$builder" --platform "$platforms" --build-arg "VERSION=v$version" "$@" .; }

build --output type=local,dest=dist/image
for arch in amd64 arm64; do
    files=dist/image/linux_$arch
    echo "scanning $files/cellserver"
    # The image has no system: besides this program, it has certificates.
    govulncheck -mode=binary "$files/cellserver"
    syft scan "dir:$files" --source-name cellserver --source-version "$version" \
        --output "spdx-json=dist/cellserver-image-$version-linux-$arch.sbom.json"
    grep -q '"github.com/spf13/pflag"' "dist/cellserver-image-$version-linux-$arch.sbom.json" ||
        { echo 'packaging/images.sh: the SBOM names no module' >&2; exit 1; }
done
[ -n "$repository" ] || { echo 'no repository is named: nothing is pushed'; exit 0; }

build --push --tag "$repository:$version" --metadata-file dist/image.metadata
digest=$(sed -n 's/.*"containerimage.digest": *"\(sha256:[0-9a-f]*\)".*/\1/p' dist/image.metadata)
[ -n "$digest" ] || { echo 'packaging/images.sh: the push reported no digest' >&2; exit 1; }
echo "$repository@$digest" | tee dist/image.digest
