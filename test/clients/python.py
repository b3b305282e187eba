"""Plays the scenario of run.sh with redis-py."""

import os
import sys
import time
import warnings

import redis

LIMIT = 15, 30, 60, 1
protocol = {"protocol": int(os.environ["PROTOCOL"])} if os.environ.get("PROTOCOL") else {}
tls = {}
if os.environ.get("TLS"):
    at = os.environ["TLS"] + "/"
    tls = dict(ssl=True, ssl_ca_certs=at + "ca.crt", ssl_certfile=at + "client.crt", ssl_keyfile=at + "client.key")


def ok(*feature):
    print("ok", *feature, flush=True)


def open_(db):
    return redis.Redis(port=int(os.environ["PORT"]), db=db, **protocol, **tls)


def refused(call, *words):
    try:
        return call(*words)
    except redis.ResponseError as e:
        return str(e)


print("client redis-py", redis.__version__)
r = open_(0)
assert r.execute_command("CL.THROTTLE", "user123", *LIMIT) == [0, 16, 15, -1, 2]
ok("throttle execute_command")

assert r.incr("n") == 1
assert r.incr("n") == 2
assert r.expire("n", 100) is True
assert 50 < r.ttl("n") <= 100
ok("counters")

if hasattr(r, "delex"):  # Debian's version does not have these
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # redis-py warns that these calls are experimental
        assert r.set("lock", "a") and r.set("lock", "b", ifeq="x") is None and r.set("lock", "b", ifeq="a") is True
        assert r.delex("lock", ifdeq="0" * 16) == 0 and r.delex("lock", ifdeq=r.digest("lock")) == 1
        assert r.msetex({"a": 1, "b": 2}, ex=100) == 1 and 50 < r.ttl("b") <= 100

pipe = r.pipeline(transaction=False)
for _ in range(10):
    pipe.execute_command("CL.THROTTLE", "pipe", 99, 1, 1000, 1)
assert [reply[:3] for reply in pipe.execute()] == [[0, 100, 99 - i] for i in range(10)]
ok("pipeline")

tx = r.pipeline()
assert tx.incr("n").execute_command("CL.THROTTLE", "tx", *LIMIT).execute() == [3, [0, 16, 15, -1, 2]]
ok("transaction")

assert refused(r.incr, "pipe").startswith("WRONGTYPE ")
# redis-py removes ERR.
assert refused(r.execute_command, "CL.THROTTLE", "k", 15, 30, "x") == "value is not an integer or out of range: period (units are ms, s, m, h and d)"
ok("errors")

two = open_(2)
assert two.exists("n") == 0
assert two.incr("n") == 1
assert r.get("n") == b"3"
two.close()
ok("database")

print("restart", flush=True)
sys.stdin.readline()
for failed in range(100):
    try:
        assert r.execute_command("CL.THROTTLE", "user123", *LIMIT) == [0, 16, 15, -1, 2]
        break
    except redis.ConnectionError:
        time.sleep(0.05)
else:
    raise AssertionError("the client does not connect again")
ok("restart", *(["after an error"] if failed else []))
