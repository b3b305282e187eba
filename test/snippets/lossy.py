"""A proxy that loses replies: lossy.py drop|once|hang|refuse server-port count-file. Prints its own port.

It forwards everything between clients and the server, up to the first CL.THROTTLE of a connection. It forwards this call to
the server, but not the reply: it closes the connection (drop), or sends nothing more (hang). For each such call, it writes a
line to the count file. With once, it does so while the count file is empty, and forwards all later calls and their replies.
With refuse, it reserves a port on which no process listens."""

import os
import socket
import sys
import threading

mode, upstream, count = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def forward(source, target, lost):
    try:
        while (got := source.recv(65536)) and not lost.is_set():
            target.sendall(got)
    except OSError:
        pass


def serve(client):
    with client, socket.create_connection(("127.0.0.1", upstream)) as server:
        lost = threading.Event()
        replies = threading.Thread(target=forward, args=(server, client, lost), daemon=True)
        replies.start()
        while got := client.recv(65536):
            if b"CL.THROTTLE" not in got or (mode == "once" and os.path.getsize(count) > 0):
                server.sendall(got)
                continue
            with open(count, "a") as f:
                f.write("taken\n")
            lost.set()  # before the server gets the call, because its reply could be forwarded otherwise
            server.sendall(got)
            while mode == "hang" and client.recv(65536):
                pass
            replies.join()  # the server has executed the call
            return


def serve_safely(client):
    try:
        serve(client)
    except OSError:
        pass  # the client has disconnected


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
if mode != "refuse":
    listener.listen()
print(listener.getsockname()[1], flush=True)
if mode == "refuse":
    threading.Event().wait()
while True:
    threading.Thread(target=serve_safely, args=(listener.accept()[0],), daemon=True).start()
