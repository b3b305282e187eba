"""The limiter for asyncio. Calls of concurrent tasks share pipelines."""

from __future__ import annotations

import asyncio
import secrets
import time
from types import TracebackType
from typing import Any, Coroutine

import redis.asyncio
import redis.exceptions as errors
from redis.asyncio.retry import Retry

from ._calls import Call, Decision, Limit, lost, new_call, no_answer, policy, seconds
from ._limiter import Core, Options

MOST_FLIGHTS = 4  # pipelines under way at once, if some are late
MOST_CALLS = 512  # calls of a pipeline
MOST_WAITING = 100_000

Waiting = tuple[Call, "asyncio.Future[Any]"]


class Limiter(Core[Coroutine[Any, Any, Decision], Coroutine[Any, Any, "tuple[Decision, list[Decision]]"]]):
    """Makes calls with the server, the user and the TLS of a client, on connections with its own timeouts.

    Calls that are made while others are under way wait for them, and share a pipeline.
    """

    def __init__(self, client: redis.asyncio.Redis, options: Options = Options()) -> None:
        super().__init__(options)
        pool = client.connection_pool
        given = self.pool_options(pool.connection_kwargs, Retry)
        self._redis = self._client(pool.connection_class, given)
        self._patient = self._client(pool.connection_class, {**given, "socket_timeout": None})
        self._waiting: list[Waiting] = []
        self._flights: set[asyncio.Task[None]] = set()
        self._began = 0.0

    def _client(self, connection_class: Any, given: dict[str, Any]) -> Any:
        pool: Any = redis.asyncio.ConnectionPool(connection_class=connection_class, **given)
        client: Any = redis.asyncio.Redis(connection_pool=pool)
        client.set_retry(given["retry"])
        return client

    async def aclose(self) -> None:
        """Closes the connections."""
        for client in (self._redis, self._patient):
            await client.connection_pool.disconnect()

    async def _decide(self, call: Call) -> Decision:
        if d := self._recall(call):
            return d
        try:
            reply = await self.ask(call)
        except Exception as error:
            return self.fallback(call, error)
        return self._decided(call, reply)

    async def _decide_all(self, call: Call) -> tuple[Decision, list[Decision]]:
        try:
            reply = await self.ask(call)
        except Exception as error:
            return self.fallback(call, error), []
        return self._all_decided(call, reply)

    async def ask(self, call: Call) -> Any:
        """Returns the reply to a call, or raises what prevented it."""
        deadline = self.begin(call)
        if call.wait:  # on a connection of its own
            reply = (await self._exchange([call], self._patient, deadline))[0]
        else:
            reply = await self._share(call, deadline)
        self._breaker.count(isinstance(reply, Exception) and lost(reply))
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def _share(self, call: Call, deadline: float) -> Any:
        if len(self._waiting) >= MOST_WAITING:
            return errors.ConnectionError("too many calls wait")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, future))
        now = time.monotonic()
        late = now - self._began > self.options.timeout / 4
        if not self._flights or late and len(self._flights) < MOST_FLIGHTS:
            self._began = now
            flight = asyncio.create_task(self._fly())
            self._flights.add(flight)
            flight.add_done_callback(self._flights.discard)
        try:
            return await asyncio.wait_for(future, max(0.0, deadline - now))
        except asyncio.TimeoutError:
            return errors.TimeoutError("no reply in time")

    async def _fly(self) -> None:
        """Sends the calls that wait, and then the calls that have arrived meanwhile, until there are none."""
        while self._waiting:
            batch, self._waiting = self._waiting[:MOST_CALLS], self._waiting[MOST_CALLS:]
            batch = [(call, future) for call, future in batch if not future.done()]  # the others gave up
            self._began = time.monotonic()
            replies = await self._exchange([call for call, _ in batch], self._redis, self._began + self.options.timeout)
            for (_, future), reply in zip(batch, replies):
                if not future.done():
                    future.set_result(reply)

    async def _exchange(self, calls: list[Call], client: Any, deadline: float) -> list[Any]:
        """Returns a reply or an exception for each call."""
        for attempt in range(self.options.retries + 1):
            try:
                left = max(0.0, deadline - time.monotonic())
                return await asyncio.wait_for(self._send(calls, client), left)
            except asyncio.TimeoutError:
                return [errors.TimeoutError("no reply in time")] * len(calls)
            except Exception as error:
                if not lost(error) or attempt == self.options.retries or time.monotonic() + 0.005 >= deadline:
                    return [error] * len(calls)
                await asyncio.sleep(0.005)
        raise AssertionError("unreachable")

    async def _send(self, calls: list[Call], client: Any) -> list[Any]:
        if len(calls) == 1:
            try:
                return [await client.execute_command(*calls[0].words)]
            except errors.ResponseError as error:
                return [error]
        pipeline = client.pipeline(transaction=False)
        for call in calls:
            pipeline.execute_command(*call.words)
        replies: list[Any] = await pipeline.execute(raise_on_error=False)
        return replies

    async def hold(self, policy_name: str, subject: str, estimate: int, ttl: float) -> tuple[Hold | None, Decision]:
        """Charges an estimate on the limits of a policy. Settle it within the time ttl, or it stays charged."""
        return await self.hold_on(policy(policy_name, subject), estimate, ttl)

    async def hold_on(self, limit: Limit, estimate: int, ttl: float, **options: Any) -> tuple[Hold | None, Decision]:
        """Charges an estimate on a limit."""
        hold = Hold(self, limit, secrets.token_hex(12))
        d = await self._decide(new_call(limit, estimate, "HOLD", hold.id, seconds(ttl), **options))
        hold.charged = d.cause is None
        return hold if d.allowed else None, d

    async def acquire(self, key: str, limit: int, ttl: float, *, wait: float = 0.0) -> tuple[Lease | None, Decision]:
        """Acquires a permit, which is renewed until it is released, unless limit permits are held."""
        lease = Lease(self, key, secrets.token_hex(12), ttl)
        d = await self._decide(new_call(Limit("ACQUIRE", key, (limit, seconds(ttl), lease.holder)), 1, wait=wait))
        if d.allowed:
            lease.start(d.cause is None)
        elif d.cause:
            await lease.give_back()  # the server may have granted it, although there is no reply
        return lease if d.allowed else None, d


class Hold:
    """A charge that is corrected later, once."""

    def __init__(self, limiter: Limiter, limit: Limit, hold_id: str) -> None:
        self._limiter, self._limit, self.id, self.charged = limiter, limit, hold_id, False

    async def settle(self, used: int) -> Decision:
        """Corrects the charge to the quantity that was used. It may be repeated with the same quantity."""
        if not self.charged:
            return Decision(True)
        return await self._limiter._decide(new_call(self._limit, used, "SETTLE", self.id))

    async def void(self) -> Decision:
        """Gives back the whole charge, as far as that is possible."""
        return await self.settle(0)


class Lease:
    """A permit. lost is set when it is lost or released; it is released at the end of an async with statement."""

    def __init__(self, limiter: Limiter, key: str, holder: str, ttl: float) -> None:
        self._limiter, self._key, self.holder, self._ttl = limiter, key, holder, ttl
        self.lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.release()

    async def release(self) -> None:
        """Gives the permit back."""
        self.lost.set()
        if self._task:
            self._task.cancel()
        await self.give_back()

    async def give_back(self) -> None:
        try:
            await self._limiter.ask(Call(["CL.RELEASE", self._key, self.holder], may_have_id=False))
        except Exception as error:
            if not no_answer(error):
                raise

    def start(self, granted: bool) -> None:
        if granted:
            self._task = asyncio.create_task(self._keep(time.monotonic()))

    async def _keep(self, renewed: float) -> None:
        """Renews the lease every third of its ttl, until it is released or lost."""
        while (left := renewed + self._ttl - time.monotonic()) > 0:
            await asyncio.sleep(min(self._ttl / 3, left))
            began = time.monotonic()
            try:
                call = Call(["CL.RENEW", self._key, seconds(self._ttl), self.holder], may_have_id=False)
                if await self._limiter.ask(call) != 1:
                    break
                renewed = began
            except Exception as error:
                if not no_answer(error):
                    break
        self.lost.set()
