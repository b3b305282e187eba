#!/usr/bin/env bash
# Signs the checksums of a release, and its image if it was pushed, with cosign and the identity of the workflow. No key
# is kept: Sigstore's authority certifies the identity, and its log has the signature.
#     packaging/sign.sh
# It has not been run yet for a release: see .github/workflows/release.yml. To verify, with the repository's address:
#     cosign verify-blob --bundle SHA256SUMS.sigstore.json --certificate-oidc-issuer https://token.actions.githubusercontent.com \
#         --certificate-identity-regexp '^https://github.com/OWNER/NAME/.github/workflows/release.yml@refs/tags/v' SHA256SUMS
#     sha256sum --check --ignore-missing SHA256SUMS
set -euo pipefail
cd "$(dirname "$0")/.."
[ -s dist/SHA256SUMS ] || { echo 'packaging/sign.sh: dist/SHA256SUMS does not exist: make release makes it' >&2; exit 1; }
(cd dist && sha256sum --check --strict --quiet SHA256SUMS)
cosign sign-blob --yes --bundle dist/SHA256SUMS.sigstore.json dist/SHA256SUMS
[ ! -e dist/image.digest ] || cosign sign --yes "$(cat dist/image.digest)"
