"""The synchronous limiter."""

from __future__ import annotations

import secrets
import threading
import time
from types import TracebackType
from typing import Any

import redis
import redis.exceptions as errors
from redis.retry import Retry

from ._calls import Call, Decision, Limit, lost, new_call, no_answer, policy, seconds
from ._limiter import Core, Options

# Before version 5.3, redis-py needs the name of a command.
_NAME = ("CL.THROTTLE",) if tuple(int(n) for n in redis.__version__.split(".")[:2]) < (5, 3) else ()


class Limiter(Core[Decision, "tuple[Decision, list[Decision]]"]):
    """Makes calls with the server, the user and the TLS of a client, on connections with its own timeouts.

    It is safe for threads, and a process needs only one.
    """

    def __init__(self, client: redis.Redis, options: Options = Options()) -> None:
        super().__init__(options)
        pool = client.connection_pool
        given = self.pool_options(pool.connection_kwargs, Retry)
        self._pool = redis.ConnectionPool(connection_class=pool.connection_class, **given)

    def close(self) -> None:
        """Closes the connections."""
        self._pool.disconnect()

    def _decide(self, call: Call) -> Decision:
        if d := self._recall(call):
            return d
        try:
            reply = self.ask(call)
        except Exception as error:
            return self.fallback(call, error)
        return self._decided(call, reply)

    def _decide_all(self, call: Call) -> tuple[Decision, list[Decision]]:
        try:
            reply = self.ask(call)
        except Exception as error:
            return self.fallback(call, error), []
        return self._all_decided(call, reply)

    def ask(self, call: Call) -> Any:
        """Returns the reply to a call, or raises what prevented it."""
        deadline = self.begin(call)
        for attempt in range(self.options.retries + 1):
            try:
                reply = self._send(call, deadline)
            except Exception as error:
                if not lost(error) or attempt == self.options.retries or time.monotonic() + 0.005 >= deadline:
                    self._breaker.count(lost(error))
                    raise
                time.sleep(0.005)
            else:
                self._breaker.count(False)
                return reply

    def _send(self, call: Call, deadline: float) -> Any:
        connection: Any = self._pool.get_connection(*_NAME)
        try:
            connection.send_command(*call.words)
            if not connection.can_read(max(0.0, deadline - time.monotonic())):
                raise errors.TimeoutError("no reply in time")
            return connection.read_response()
        except errors.ResponseError:
            raise
        except BaseException:
            connection.disconnect()
            raise
        finally:
            self._pool.release(connection)

    def hold(self, policy_name: str, subject: str, estimate: int, ttl: float) -> tuple[Hold | None, Decision]:
        """Charges an estimate on the limits of a policy. Settle it within the time ttl, or it stays charged."""
        return self.hold_on(policy(policy_name, subject), estimate, ttl)

    def hold_on(self, limit: Limit, estimate: int, ttl: float, **options: Any) -> tuple[Hold | None, Decision]:
        """Charges an estimate on a limit."""
        hold = Hold(self, limit, secrets.token_hex(12))
        d = self._decide(new_call(limit, estimate, "HOLD", hold.id, seconds(ttl), **options))
        hold.charged = d.cause is None
        return hold if d.allowed else None, d

    def acquire(self, key: str, limit: int, ttl: float, *, wait: float = 0.0) -> tuple[Lease | None, Decision]:
        """Acquires a permit, which is renewed until it is released, unless limit permits are held."""
        lease = Lease(self, key, secrets.token_hex(12), ttl)
        d = self._decide(new_call(Limit("ACQUIRE", key, (limit, seconds(ttl), lease.holder)), 1, wait=wait))
        if d.allowed:
            lease.start(d.cause is None)
        elif d.cause:
            lease.give_back()  # the server may have granted it, although there is no reply
        return lease if d.allowed else None, d


class Hold:
    """A charge that is corrected later, once."""

    def __init__(self, limiter: Limiter, limit: Limit, hold_id: str) -> None:
        self._limiter, self._limit, self.id, self.charged = limiter, limit, hold_id, False

    def settle(self, used: int) -> Decision:
        """Corrects the charge to the quantity that was used. It may be repeated with the same quantity."""
        if not self.charged:
            return Decision(True)
        return self._limiter._decide(new_call(self._limit, used, "SETTLE", self.id))

    def void(self) -> Decision:
        """Gives back the whole charge, as far as that is possible."""
        return self.settle(0)


class Lease:
    """A permit. lost is set when it is lost or released; it is released at the end of a with statement."""

    def __init__(self, limiter: Limiter, key: str, holder: str, ttl: float) -> None:
        self._limiter, self._key, self.holder, self._ttl = limiter, key, holder, ttl
        self.lost = threading.Event()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Gives the permit back."""
        self.lost.set()
        self.give_back()

    def give_back(self) -> None:
        try:
            self._limiter.ask(Call(["CL.RELEASE", self._key, self.holder], may_have_id=False))
        except Exception as error:
            if not no_answer(error):
                raise

    def start(self, granted: bool) -> None:
        if granted:
            threading.Thread(target=self._keep, args=(time.monotonic(),), daemon=True).start()

    def _keep(self, renewed: float) -> None:
        """Renews the lease every third of its ttl, until it is released or lost."""
        while not self.lost.wait(min(self._ttl / 3, renewed + self._ttl - time.monotonic())):
            began = time.monotonic()
            if began >= renewed + self._ttl:
                break
            try:
                call = Call(["CL.RENEW", self._key, seconds(self._ttl), self.holder], may_have_id=False)
                if self._limiter.ask(call) != 1:
                    break
                renewed = began
            except Exception as error:
                if not no_answer(error):
                    break
        self.lost.set()
