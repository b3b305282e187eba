# Sourced from the project's directory by scripts that need redis-cell, after they have defined missing, which ends them.
# build_redis_cell sets REDIS_CELL, unless it names the module already, and REDIS_CELL_VERSION. It builds the version that
# Cargo.toml names, which is the last one that was published as a crate, in bin/rediscell.

build_redis_cell() {
    local here=$PWD/test/rediscell dir=$PWD/bin/rediscell
    if [ -z "${REDIS_CELL:-}" ]; then
        REDIS_CELL=$dir/source/target/release/libredis_cell.so
        [ "$REDIS_CELL" -nt "$here/Cargo.toml" ] || compile_redis_cell "$here" "$dir"
        REDIS_CELL_VERSION=$(sed -n 's/^redis-cell = "=\(.*\)"/\1/p' "$here/Cargo.toml")
    fi
    export REDIS_CELL REDIS_CELL_VERSION=${REDIS_CELL_VERSION:-unknown}
}

# compile_redis_cell compiles the crate by itself: as a dependency, it would need Rust's own library to be loaded with it.
compile_redis_cell() {
    local here=$1 dir=$2 program manifest
    for program in cargo cc; do
        command -v "$program" >/dev/null || missing "$program is not installed"
    done
    rm -rf "$dir" && mkdir -p "$dir" && cp -r "$here/Cargo.toml" "$here/src" "$dir"
    manifest=$(cd "$dir" && cargo metadata --quiet --format-version 1 2>"$dir/log" | tr ',' '\n' |
        sed -n 's/^"manifest_path":"\(.*\/redis-cell-[^"]*\)"$/\1/p')
    [ -n "$manifest" ] || missing "cargo cannot fetch redis-cell: $(tail -n 1 "$dir/log")"
    cp -r "$(dirname "$manifest")" "$dir/source"
    (cd "$dir/source" && cargo build --quiet --release) >"$dir/log" 2>&1 || missing "cargo cannot build redis-cell: $(tail -n 1 "$dir/log")"
}
