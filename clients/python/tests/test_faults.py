"""Whatever happens to connections and servers, an answered call has counted once, and an unanswered call at most once.

FAULTS is the number of calls. The program in FAULTS_PROXY breaks connections and servers.
"""

import asyncio
import os
import subprocess
import time
from dataclasses import replace
from concurrent.futures import ThreadPoolExecutor

import cellserver
import pytest
import redis
import redis.asyncio
from cellserver.aio import Limiter as AsyncLimiter

CALLS = int(os.environ.get("FAULTS", 2000))
options = cellserver.Options(timeout=5, on_error="deny")

# On a busy machine, a store may need longer than 100 ms, and a client may repeat a call after more than 10 s.
ENVIRONMENT = {**os.environ, "CELLSERVER_STORE_TIMEOUT": "30000", "CELLSERVER_ID_TTL": "3600"}


@pytest.fixture
def faults():
    """The port of the proxy, and a function that ends its faults."""
    command = [os.environ["FAULTS_PROXY"], os.environ["CELLSERVER"]]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=ENVIRONMENT, stdin=pipe, stdout=pipe, text=True, bufsize=1) as program:

        def quiet():
            program.stdin.write("\n")
            return program.stdout.readline()

        yield int(program.stdout.readline()), quiet


def executed(pipeline):
    """The replies of a pipeline. The server that was started last may not have reached its store yet."""
    commands = list(pipeline.command_stack)
    while True:
        replies = pipeline.execute(raise_on_error=False)
        failed = [r for r in replies if isinstance(r, Exception)]
        if not failed:
            return replies
        if not cellserver.no_answer(failed[0]):
            raise failed[0]
        pipeline.command_stack = list(commands)


def check(port, answered):
    """Returns how many calls were answered and not counted, and how many were counted twice."""
    lost = twice = 0
    with redis.Redis(port=port) as r:
        for first in range(0, CALLS, 1000):
            pipeline = r.pipeline(transaction=False)
            for i in range(first, min(first + 1000, CALLS)):
                pipeline.execute_command("CL.FIXED", i, 10, 3600, 0)
            for i, reply in enumerate(executed(pipeline), first):
                lost += answered[i] and reply[2] == 10
                twice += reply[2] < 9
    print(f"{CALLS} calls, {CALLS - sum(answered)} without an answer, {lost} lost, {twice} counted twice")
    assert any(answered)
    return lost, twice


def test_sync(faults):
    port, quiet = faults
    limiter = cellserver.Limiter(redis.Redis(port=port), options)

    def call(i):
        d = limiter.do(cellserver.fixed(str(i), 10, 3600))
        assert d.allowed == (d.cause is None)
        if d.cause:
            time.sleep(0.02)
        return d.cause is None

    with ThreadPoolExecutor(20) as callers:
        answered = list(callers.map(call, range(CALLS)))
    print(quiet())
    # Without faults, calls are answered again.
    while limiter.do(cellserver.fixed("after", 10, 3600)).cause:
        time.sleep(0.02)
    assert check(port, answered) == (0, 0)


@pytest.mark.parametrize("ids", [True, False])
def test_asyncio(faults, monkeypatch, ids):
    """Without IDs, which is a planted bug, calls are counted twice."""
    port, quiet = faults
    answered = [False] * CALLS
    remaining = iter(range(CALLS))

    async def caller(limiter):
        for i in remaining:
            d = await limiter.do(cellserver.fixed(str(i), 10, 3600))
            assert d.allowed == (d.cause is None)
            answered[i] = d.cause is None
            if d.cause:
                await asyncio.sleep(0.02)

    async def run():
        limiter = AsyncLimiter(redis.asyncio.Redis(port=port), options)
        if not ids:
            monkeypatch.setattr(limiter, "begin", lambda call: type(limiter).begin(limiter, replace(call, may_have_id=False)))
        await asyncio.gather(*(caller(limiter) for _ in range(50)))
        print(await asyncio.to_thread(quiet))
        while (await limiter.do(cellserver.fixed("after", 10, 3600))).cause:  # as in test_sync
            await asyncio.sleep(0.02)
        await limiter.aclose()

    asyncio.run(run())
    lost, twice = check(port, answered)
    assert lost == 0 and (twice == 0) == ids
