"""What happens while the server does not answer."""

import asyncio
import pathlib
import re
import subprocess
import sys
import time

import cellserver
import pytest
import redis
import redis.asyncio
from cellserver import _calls, _outage
from test_contract import kind, make  # noqa: F401

rate = {"burst": 20, "count": 1, "period": 86400}


@pytest.mark.parametrize("on_error, allowed", [("allow", 20), ("deny", 0), ("local", 5)])
def test_on_error(make, on_error, allowed):  # noqa: F811
    limiter = make(1, on_error=on_error, share=0.25)
    decisions = [limiter.throttle("k", **rate) for _ in range(20)]
    assert sum(d.allowed for d in decisions) == allowed
    assert all(cellserver.no_answer(d.cause) for d in decisions)


def test_mistake(shared, make):  # noqa: F811
    shared.ask("SET text value")
    with pytest.raises(redis.ResponseError, match="wrong kind"):
        make(shared.port).throttle("text", **rate)


def test_stopped_server(server, make):  # noqa: F811
    limiter = make(server.port, timeout=0.05, on_error="deny")
    while limiter.throttle("k", **rate).cause:
        pass
    server.stop()
    began = time.monotonic()
    d = limiter.throttle("k", **rate)
    assert not d.allowed and d.cause
    assert time.monotonic() - began < 4  # redis-py alone waits for 5 s, and tries again


def test_first_five():
    breaker, sent = _outage.Breaker(), 0
    for ms in range(1000):
        if breaker.admit(ms / 1000):
            sent += 1
            breaker.count(True)
    assert sent == _outage.FAILURES + 10
    breaker.count(False)
    assert breaker.admit(1) and breaker.admit(1)


def take(buckets, limit, now, quantity=1):
    return buckets.take(_calls.new_call(limit, quantity), now)


def test_local():
    k = cellserver.throttle("k", burst=8, count=60, period=60)
    buckets = _outage.Buckets(0.5)
    assert sum(take(buckets, k, n / 128).allowed for n in range(1280)) == 4 + 5 - 1
    assert not take(_outage.Buckets(0.1), k, 0).allowed
    assert not take(buckets, cellserver.policy("api", "k"), 0).allowed
    whole = _outage.Buckets(1)
    a, b = cellserver.fixed("a", 10, 3600), cellserver.fixed("b", 10, 3600)
    d = whole.take(_calls.new_all([cellserver.Part(a, 8), cellserver.Part(b, 11)], False, 0), 0)
    assert not d.allowed and d.retry_after == cellserver.NEVER
    assert take(whole, a, 0, 8).remaining == 2
    for n in range(_outage.MOST_BUCKETS + 100):
        take(whole, cellserver.fixed(str(n), 10, 3600), 0)
    assert len(whole.by_key) == _outage.MOST_BUCKETS
    assert take(whole, cellserver.fixed("late", 10, 3600), 3600).allowed and len(whole.by_key) == 1


def test_tasks_share_pipelines(shared):
    async def scenario():
        limiter = cellserver.aio.Limiter(redis.asyncio.Redis(port=shared.port), cellserver.Options(timeout=60))
        big = cellserver.fixed("shared", 10_000, 3600)

        async def caller():
            for _ in range(40):
                assert (await limiter.do(big)).allowed

        cancelled = asyncio.create_task(caller())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(*(caller() for _ in range(50)))
        d = await limiter.do(big, 0)
        assert 2000 <= 10_000 - d.remaining <= 2001
        assert len(shared.ask("CLIENT LIST").splitlines()) < 5
        await limiter.aclose()

    asyncio.run(scenario())


def test_lease_is_renewed_and_lost(shared, make, kind):  # noqa: F811
    if kind == "sync":
        following = shared.listen("CL.RENEW")
        lease, d = make(shared.port).acquire("exports", 1, 2)
        assert d.allowed and following()[2] == "2" and not lease.lost.is_set()
        shared.ask("DEL exports")
        assert lease.lost.wait(60)
        return

    async def scenario():
        limiter = cellserver.aio.Limiter(redis.asyncio.Redis(port=shared.port), cellserver.Options(timeout=60))
        following = shared.listen("CL.RENEW")
        lease, d = await limiter.acquire("exports", 1, 2)
        assert d.allowed and (await asyncio.to_thread(following))[2] == "2"
        shared.ask("DEL exports")
        await asyncio.wait_for(lease.lost.wait(), 60)
        await limiter.aclose()

    asyncio.run(scenario())


def test_readme(shared):
    """README.md begins with six lines that run."""
    shared.ask("FLUSHALL")
    text = (pathlib.Path(__file__).parents[1] / "README.md").read_text()
    program = re.search("```python\n(.*?)```", text, re.DOTALL)[1]
    assert program.count("\n") <= 6
    program = program.replace("6379", str(shared.port))
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "True 15\n", ran.stderr
