#!/bin/sh
# Writes what packages contain apart from the binary into bin/package: the manual page and the completions,
# which the server prints, and the systemd unit with the path of the packaged binary.
set -eu
cd "$(dirname "$0")/.."
umask 022
rm -rf bin/package
mkdir -p bin/package
CGO_ENABLED=0 go build -trimpath -buildvcs=false -o bin/prepare ./cmd/cellserver
bin/prepare man | gzip -9n > bin/package/cellserver.1.gz
bin/prepare completion bash > bin/package/cellserver.bash
bin/prepare completion fish > bin/package/cellserver.fish
bin/prepare completion zsh > bin/package/_cellserver
sed 's|/usr/local/bin/cellserver|/usr/bin/cellserver|' deploy/cellserver.service > bin/package/cellserver.service
rm bin/prepare
