#!/usr/bin/env bash
# Checks the chart in deploy/helm with helm, which is built from its module into bin/tools, once.
set -euo pipefail
cd "$(dirname "$0")/../.."
packaging/tools.sh helm
HELM=$PWD/bin/tools/helm go test -count=1 -tags helm ./test/helm
