"""A peer that loses replies: lossy.py drop|hang|refuse server-port count-file. Prints its own port.

It passes everything on to the server and back, up to the first CL.THROTTLE of a connection. That one reaches the server;
then the client is hung up on (drop) or hears nothing more (hang). Each writes a line to the count file. With refuse nobody
listens on the port, and nobody else can."""

import socket
import sys
import threading

mode, upstream, count = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def pump(source, target, lost):
    try:
        while (got := source.recv(65536)) and not lost.is_set():
            target.sendall(got)
    except OSError:
        pass


def serve(client):
    with client, socket.create_connection(("127.0.0.1", upstream)) as server:
        lost = threading.Event()
        threading.Thread(target=pump, args=(server, client, lost), daemon=True).start()
        while got := client.recv(65536):
            if b"CL.THROTTLE" not in got:
                server.sendall(got)
                continue
            with open(count, "a") as f:
                f.write("taken\n")
            lost.set()  # before the server is asked, or its reply might be passed on
            server.sendall(got)
            while mode == "hang" and client.recv(65536):
                pass
            return


def guarded(client):
    try:
        serve(client)
    except OSError:
        pass  # the client went away


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
if mode != "refuse":
    listener.listen()
print(listener.getsockname()[1], flush=True)
if mode == "refuse":
    threading.Event().wait()
while True:
    threading.Thread(target=guarded, args=(listener.accept()[0],), daemon=True).start()
