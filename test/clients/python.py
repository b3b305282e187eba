"""redis-py, as it comes: python.py port"""

import sys

import redis

port = int(sys.argv[1])
version = redis.__version__


def error(call, *words):
    try:
        call(*words)
    except redis.ResponseError as e:
        return str(e)
    raise AssertionError(f"{words} was not refused")


def check(name, **options):
    with redis.Redis(port=port, **options) as r:
        r.flushall()
        assert r.ping() is True
        call = ("CL.THROTTLE", "user123", 15, 30, 60, 1)
        assert r.execute_command(*call) == [0, 16, 15, -1, 2]

        pipe = r.pipeline(transaction=False)
        for _ in range(100):
            pipe.execute_command("CL.THROTTLE", "pipe", 99, 1, 1000, 1)
        assert [reply[:3] for reply in pipe.execute()] == [[0, 100, 99 - i] for i in range(100)]

        # redis-py takes the ERR off.
        assert error(r.execute_command, "CL.THROTTLE", "k", 15, 30, "x") == "value is not an integer or out of range"
        assert error(r.execute_command, "NOSUCH", "a").startswith("unknown command 'NOSUCH', with args beginning with: 'a'")
        assert r.exists("pipe", "nosuch") == 1

        with redis.Redis(port=port, db=2, **options) as two:
            assert two.exists("pipe") == 0
            assert two.execute_command("CL.THROTTLE", "pipe", 15, 1, 1000, 1)[:3] == [0, 16, 15]
            two.flushdb()
        assert r.exists("pipe") == 1

        before = r.client_id()
        r.connection_pool.disconnect()
        assert r.execute_command("CL.THROTTLE", "pipe", 99, 1, 1000, 1)[:3] == [1, 100, 0]
        assert r.client_id() != before
    print("ok", name, version)


check("redis-py")
check("redis-py-resp2", protocol=2)
check("redis-py-resp3", protocol=3)
