#!/usr/bin/env bash
# Runs the tests that limiter libraries have in their packages, with the stores of the clients:
# clients/libraries.sh path/to/cellserver, after clients/test.sh. These tests wait for windows of a second to pass, so
# they may fail on a busy machine, and CI does not run them. (ulule/limiter has tests for stores, which clients/test.sh plays.)
set -eu

binary=$(realpath "${1:?usage: $0 path/to/cellserver}")
here=$(dirname "$(realpath "$0")")
installed=$(realpath "$here/../bin/clients${CLIENTS:+-$CLIENTS}")
[ -d "$installed/own_node/node_modules/cellserver" ] || { echo "run clients/test.sh first" >&2; exit 1; }
dir=$(mktemp -d)
trap '[ -z "${server-}" ] || kill "$server"; rm -rf "$dir"' EXIT

. "$here/server.sh"
serve "$binary" "$dir"

# The tests of limits for strategies, with the storage of the client instead of all storages. It has no sliding window
# counter, and a limit of its moving window is at most 100,000 (--max-log-limit): tests of these are left out.
test_limits() {
    local python=$installed/own_python/bin/python version
    version=$("$python" -c 'from importlib.metadata import version; print(version("limits"))')
    "$python" -m pip install --quiet --disable-pip-version-check pytest-lazy-fixtures
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary limits --dest "$dir" "limits==$version"
    tar xzf "$dir/limits-$version.tar.gz" -C "$dir"
    cd "$dir/limits-$version"
    rm pytest.ini
    cat >tests/conftest.py <<END
import cellserver.limits_storage, pytest, redis

@pytest.fixture(autouse=True)
def empty():
    redis.Redis(port=$port).flushall()
END
    cat >>tests/utils.py <<END
all_storage = moving_window_storage = pytest.mark.parametrize(
    "uri, args, fixture", [("cellserver://127.0.0.1:$port", {"socket_timeout": 60}, None)]
)
END
    mv limits limits.source # so that the installed package is tested
    "$python" -m pytest -q -p no:cacheprovider -W ignore tests/test_strategy.py -k '(TestFixedWindow or TestMovingWindow) and not huge_cost'
}

# The tests of @fastify/rate-limit for its store in Redis, with the client's store in its place. Only tests of options that
# this store refuses fail: continueExceeding and exponentialBackoff.
test_fastify() {
    cd "$installed/own_node"
    cat >"$dir/instead.cjs" <<END
const Module = require("node:module");
const load = Module._load;
Module._load = function (name, ...more) {
  if (name === "ioredis") {
    const Redis = load.call(this, name, ...more);
    return class extends Redis { constructor(o) { super({ ...o, port: $port }); } };
  }
  if (name !== "./store/RedisStore") return load.call(this, name, ...more);
  const { storeOf } = load.call(this, "$installed/own_node/node_modules/cellserver/dist/fastify.js", ...more);
  return function (continueExceeding, exponentialBackoff, redis, nameSpace) {
    const Store = storeOf(redis, { prefix: nameSpace ?? "fastify-rate-limit-", timeout: 5000 });
    return new Store({ continueExceeding, exponentialBackoff });
  };
};
END
    node --require "$dir/instead.cjs" --test-force-exit --test-reporter=tap node_modules/@fastify/rate-limit/test/redis-rate-limit.test.js \
        >"$dir/tap" 2>&1 || true
    local passed failed refused
    passed=$(grep -c '^    ok ' "$dir/tap")
    failed=$(grep -c '^    not ok ' "$dir/tap")
    refused=$(grep -c "error: 'cellserver: continueExceeding and exponentialBackoff are not possible" "$dir/tap")
    echo "@fastify/rate-limit: $passed passed, $refused use options that are refused, $((failed - refused)) failed"
    [ "$passed" -ge 10 ] && [ "$failed" = "$refused" ] || { cat "$dir/tap"; return 1; }
}

(test_limits)
(test_fastify)
