"""A server that forgets: forgetful.py server-port COMMAND n. Prints its own port.

It passes everything on to a server and back, but has the n-th COMMAND, by any client, done to another key than was said. A
checker that is worth something complains. With n = 0 it forgets nothing."""

import socket
import sys
import threading

upstream, command, forget = int(sys.argv[1]), sys.argv[2].encode(), int(sys.argv[3])
counting = threading.Lock()
seen = 0


def calls(stream):
    while header := stream.readline():
        words = []
        for _ in range(int(header[1:])):
            length = int(stream.readline()[1:])
            words.append(stream.read(length + 2)[:length])
        yield words


def forgotten(words):
    global seen
    if words[0].upper() != command:
        return False
    with counting:
        seen += 1
        return seen == forget


def answer(server, client):
    try:
        while got := server.recv(65536):
            client.sendall(got)
        client.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the client went away


def serve(client):
    with client, socket.create_connection(("127.0.0.1", upstream)) as server:
        threading.Thread(target=answer, args=(server, client), daemon=True).start()
        for words in calls(client.makefile("rb")):
            if forgotten(words):
                words[1] += b"?"
            server.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))


def guarded(client):
    try:
        serve(client)
    except OSError:
        pass  # one of both went away


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=guarded, args=(listener.accept()[0],), daemon=True).start()
