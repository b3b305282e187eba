# Where the clients of other languages are, for the scripts that run them: they source this file, and say for example
#     installed node && ls "$clients/node/node_modules"
# A language's clients are installed once, into bin/clients, at the versions that are written down for it:
# node/package-lock.json, requirements.txt, rust/Cargo.toml and java/pom.xml (Go's are in go/go.mod). They are installed again
# when these change. CLIENTS=newest installs the newest of each, every time. What an installer complained of is then in
# $clients/<language>.log.
locks=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
clients=$locks/../../bin/clients${CLIENTS:+-$CLIENTS}
[[ ${CLIENTS:-} =~ ^(newest)?$ ]] || { echo "CLIENTS=$CLIENTS: it may be newest" >&2; exit 1; }
newest() { [ "${CLIENTS:-}" = newest ]; }
mkdir -p "$clients"
clients=$(realpath "$clients")

# installed has a language's clients installed, if they are not there, or not those that are written down.
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

# A virtual environment knows where it is, and of which Python.
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
