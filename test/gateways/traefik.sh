#!/usr/bin/env bash
# Runs the configuration of docs/gateways.md with Traefik: test/gateways/traefik.sh. Arguments are passed to go test.
# TRAEFIK_BINARY may name the program. Otherwise it is built from its module in bin/traefik, which takes minutes the first time.
# Without either, the script prints NOT CHECKED, and fails if TRAEFIK=required.
set -eu

cd "$(dirname "$(realpath "$0")")/../.."

version=v3.6.12 # the newest that Go 1.25 compiles
dir=$PWD/bin/traefik

missing() {
    echo "make test-traefik: NOT CHECKED: $* (TRAEFIK_BINARY names the program)" >&2
    [ "${TRAEFIK:-}" != required ] || exit 1
    exit 0
}

# The module cannot be built where Go keeps modules: its replace directives count in the main module alone. It is built without
# the 200 providers of DNS by which it can get certificates, which are a third of its packages.
build() {
    local module
    rm -rf "$dir" && mkdir -p "$dir"
    module=$(go mod download -json "github.com/traefik/traefik/v3@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    [ -n "$module" ] || missing "Traefik $version cannot be downloaded"
    cp -r "$module" "$dir/source" && chmod -R u+w "$dir/source" && cd "$dir/source"
    go mod download github.com/go-acme/lego/v4 || missing 'what Traefik imports cannot be downloaded'
    cp -r "$(go list -m -f '{{.Dir}}' github.com/go-acme/lego/v4)" "$dir/lego" && chmod -R u+w "$dir/lego"
    cat >"$dir/lego/providers/dns/zz_gen_dns_providers.go" <<'END'
package dns

import (
	"errors"

	"github.com/go-acme/lego/v4/challenge"
)

func NewDNSChallengeProviderByName(string) (challenge.Provider, error) {
	return nil, errors.New("this build has no providers of DNS")
}
END
    go mod edit -replace "github.com/go-acme/lego/v4=$dir/lego"
    CGO_ENABLED=0 go build -ldflags "-s -w -X github.com/traefik/traefik/v3/pkg/version.Version=$version" -o "$dir/traefik-$version" ./cmd/traefik || missing 'Traefik cannot be built'
}

if [ -z "${TRAEFIK_BINARY:-}" ]; then
    TRAEFIK_BINARY=$dir/traefik-$version
    [ -x "$TRAEFIK_BINARY" ] || (build)
    [ -x "$TRAEFIK_BINARY" ] || exit 0 # build has said why
fi
echo "testing with $("$TRAEFIK_BINARY" version | grep '^Version' || echo "$TRAEFIK_BINARY")"
# The other tests are of nginx and HAProxy, or of requests that pass without an answer.
CELLSERVER_TEST_TRAEFIK=$(realpath "$TRAEFIK_BINARY") go test -count=1 ./test/gateways \
    -run '^Test(Gateways|Addresses|RefusesWithoutAnAnswer|Blocked|WithoutASubject)$' "$@"
