"""A proxy that loses one call: forgetful.py server-port COMMAND n. Prints its own port.

It forwards everything between clients and a server, but changes the key of the n-th call of COMMAND that any client makes, so
that the call has no effect on its real key. A test that checks its results must then fail. With n = 0 no call is changed."""

import socket
import sys
import threading

upstream, command, lost = int(sys.argv[1]), sys.argv[2].encode(), int(sys.argv[3])
counting = threading.Lock()
seen = 0


def calls(stream):
    while header := stream.readline():
        words = []
        for _ in range(int(header[1:])):
            length = int(stream.readline()[1:])
            words.append(stream.read(length + 2)[:length])
        yield words


def is_lost(words):
    global seen
    if words[0].upper() != command:
        return False
    with counting:
        seen += 1
        return seen == lost


def forward_replies(server, client):
    try:
        while got := server.recv(65536):
            client.sendall(got)
        client.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the client has disconnected


def serve(client):
    with client, socket.create_connection(("127.0.0.1", upstream)) as server:
        threading.Thread(target=forward_replies, args=(server, client), daemon=True).start()
        for words in calls(client.makefile("rb")):
            if is_lost(words):
                words[1] += b"?"
            server.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))


def serve_safely(client):
    try:
        serve(client)
    except OSError:
        pass  # the client or the server has disconnected


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve_safely, args=(listener.accept()[0],), daemon=True).start()
