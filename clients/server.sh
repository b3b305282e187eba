# shellcheck shell=bash
# serve starts a server, with its log in a folder, and sets port and server (its process). Scripts of this folder include it.
serve() { # path/to/cellserver, folder
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    "$1" --port "$port" >"$2/log" 2>&1 &
    server=$!
    until grep -qs 'Ready to accept connections' "$2/log"; do
        kill -0 "$server" || { cat "$2/log" >&2; exit 1; }
        sleep 0.1
    done
}
