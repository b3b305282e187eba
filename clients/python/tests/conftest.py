"""A real server for tests: the program that the environment variable CELLSERVER names."""

import contextlib
import os
import pathlib
import random
import shlex
import signal
import socket
import subprocess
import threading

import pytest
import redis

CONTRACT = pathlib.Path(__file__).parents[2] / "contract"


def free_port():
    """Returns a port that nobody listens on, below those that systems give to connections."""
    while True:
        port = random.randrange(16384, 32768)
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind(("127.0.0.1", port))
            return port


class Server:
    def __init__(self, port=0, *args):
        self.port = port = port or free_port()
        command = [os.environ["CELLSERVER"], "--port", str(port), "--policies", CONTRACT / "policies.yaml", *args]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if "Ready to accept connections" in line:
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def ask(self, *calls):
        """Makes calls, each a string of words, and returns the last reply."""
        with redis.Redis(port=self.port) as r:
            for call in calls:
                reply = r.execute_command(*call.split())
        return reply

    def listen(self, prefix="CL."):
        """Returns a function that returns the words of the server's next call whose name begins with a prefix."""
        s = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        s.sendall(b"MONITOR\r\n")
        lines = s.makefile("r")
        lines.readline()

        def following():
            for line in lines:
                words = shlex.split(line.split("] ", 1)[1])
                if words[0].startswith(prefix):
                    return words

        return following

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def end(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server():
    s = Server()
    yield s
    s.end()


@pytest.fixture(scope="module")
def shared():
    s = Server()
    yield s
    s.end()


@pytest.fixture
def refuser():
    """Answers a decision with the error reply, and any other call with another error: refuser(reply) is its port."""
    listeners = []

    def refuse(connection, reply):
        lines = connection.makefile("rb")
        while count := lines.readline():
            words = [lines.read(int(lines.readline()[1:]) + 2) for _ in range(int(count[1:]))]
            answer = reply if words[0].startswith(b"CL.") else "ERR unknown command"
            connection.sendall(f"-{answer}\r\n".encode())

    def start(reply):
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def accept():
            try:
                while True:
                    threading.Thread(target=refuse, args=(listener.accept()[0], reply), daemon=True).start()
            except OSError:
                pass

        threading.Thread(target=accept, daemon=True).start()
        return listener.getsockname()[1]

    yield start
    for listener in listeners:
        listener.close()
