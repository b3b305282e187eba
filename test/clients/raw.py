"""Speaks the protocol over a plain socket, without a client library: raw.py port"""

import socket
import sys

port = int(sys.argv[1])
CALL = b"*6\r\n$11\r\nCL.THROTTLE\r\n$7\r\nuser123\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n$1\r\n1\r\n"


def exchange(sent, answer):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as s:
        s.sendall(sent)
        s.shutdown(socket.SHUT_WR)
        got = b"".join(iter(lambda: s.recv(65536), b""))
    assert got == answer, (sent, got, answer)


for hello in b"", b"HELLO 3\r\n":
    with socket.create_connection(("127.0.0.1", port), timeout=10) as s:
        lines = s.makefile("rb")
        s.sendall(b"FLUSHALL\r\n" + hello + b"ECHO here\r\n" + CALL)
        while lines.readline() != b"here\r\n":
            pass
        assert b"".join(lines.readline() for _ in range(6)) == b"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n"

exchange(b"FLUSHALL\r\n" + CALL * 2, b"+OK\r\n*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n*5\r\n:0\r\n:16\r\n:14\r\n:-1\r\n:4\r\n")
exchange(b"CL.THROTTLE k 15 30 x\r\n", b"-ERR value is not an integer or out of range: period (units are ms, s, m, h and d)\r\n")
exchange(b"NOSUCH\r\n", b"-ERR unknown command 'NOSUCH', with args beginning with: \r\n")
exchange(b"SELECT 2\r\nEXISTS user123\r\n" + CALL, b"+OK\r\n:0\r\n*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n")
exchange(b"SELECT 2\r\nFLUSHDB\r\nSELECT 0\r\nDBSIZE\r\n", b"+OK\r\n+OK\r\n+OK\r\n:1\r\n")
print("ok socket", "python", sys.version.split()[0])
