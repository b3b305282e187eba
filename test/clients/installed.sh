# Installs Redis clients of other languages, for scripts that source this file. For example,
#
#     installed node && ls "$clients/node/node_modules"
#
# installs the clients for Node.js if they are not installed yet. The clients of a language are
# installed into bin/clients, with the versions in node/package-lock.json, requirements.txt,
# rust/Cargo.toml and java/pom.xml (those of Go are in go/go.mod), and are installed again when these
# files change. CLIENTS=newest installs the newest version of each client every time. The output of
# the installer is in $clients/<language>.log.
locks=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
clients=$locks/../../bin/clients${CLIENTS:+-$CLIENTS}
[[ ${CLIENTS:-} =~ ^(newest)?$ ]] || { echo "CLIENTS=$CLIENTS: the only value allowed is newest" >&2; exit 1; }
newest() { [ "${CLIENTS:-}" = newest ]; }
mkdir -p "$clients"
clients=$(realpath "$clients")

# installed installs the clients of a language unless they are installed in the right versions.
installed() { # language
    local place=$clients/$1 stamp
    stamp=$("stamp_$1" | sha256sum)
    if newest || [ "$stamp" != "$(cat "$place/stamp" 2>/dev/null)" ]; then
        rm -rf "$place"
        mkdir -p "$place"
        (cd "$place" && "install_$1") >"$clients/$1.log" 2>&1 || return
        echo "$stamp" >"$place/stamp"
    fi
}

stamp_node() { node --version && cat "$locks/node/package-lock.json"; }
install_node() {
    if newest; then
        sed -E 's/: "[0-9][^"]*"/: "latest"/; s/(npm:[a-z]*@[0-9]*)[^"]*/\1/' "$locks/node/package.json" >package.json &&
            npm install --loglevel error --no-audit --no-fund
    else
        cp "$locks"/node/package*.json . && npm ci --loglevel error --no-audit --no-fund
    fi
}

# A virtual environment contains its own path and the version of Python, so both are in the stamp.
stamp_python() { echo "$clients" && python3 --version && cat "$locks/requirements.txt"; }
install_python() {
    sed "$(newest && echo 's/==.*//')" "$locks/requirements.txt" >requirements.txt && python3 -m venv . &&
        bin/pip install --quiet --disable-pip-version-check --requirement requirements.txt
}

stamp_rust() { cargo --version && find "$locks/rust" -type f | sort | xargs cat; }
install_rust() {
    cp -r "$locks"/rust/* . && { ! newest || sed -i 's/"=.*"/"*"/' Cargo.toml; } && cargo build --quiet
}

stamp_java() { cat "$locks/java/pom.xml"; }
install_java() {
    cp "$locks/java/pom.xml" . && { ! newest || mvn -q -B org.codehaus.mojo:versions-maven-plugin:2.18.0:use-latest-releases; } &&
        mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib
}
