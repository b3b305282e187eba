"""What the synchronous and the asyncio limiter share."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Generic, Literal, Optional, Sequence, TypeVar

import redis.exceptions as errors
from redis.backoff import NoBackoff

from . import _calls as calls
from ._calls import IDs, Call, Decision, Limit, Part, no_answer
from ._outage import Breaker, Buckets, Refusals

Observe = Callable[[str, Optional[Decision], Optional[BaseException]], None]
OnError = Literal["allow", "deny", "local"]


@dataclass(frozen=True)
class Options:
    """Options of a limiter.

    timeout is the time in seconds for all tries of a call. A call without a reply is sent again up to retries times,
    and counts once, because it has an ID unless retries is 0. If there is still no reply, on_error decides: "allow",
    "deny", or "local", which admits the part share of each limit, such as 0.25 for one of four processes. observe is
    called after each call, with the name of its command, for metrics and traces. With remember, a refusal is repeated
    without asking the server, until its retry_after is over, and for a second at most: calls of the same limit that have
    at least the refused quantity and no options are refused, even if another client resets or refunds the limit.
    """

    timeout: float = 0.1
    retries: int = 5
    on_error: OnError = "allow"
    share: float = 0.0
    observe: Observe | None = None
    max_connections: int = 1000
    remember: bool = False


# The options of a client's connections that the limiter copies. It sets timeouts and retries itself.
KEPT = ("host", "port", "path", "db", "username", "password", "credential_provider", "client_name", "protocol",
        "socket_keepalive", "socket_keepalive_options", "socket_type", "redis_connect_func")


One = TypeVar("One")
Several = TypeVar("Several")


class Core(Generic[One, Several]):
    """Calls. A negative quantity is a refund. Their options are peek, upto, force, leave=n and wait=seconds."""

    def __init__(self, options: Options) -> None:
        self.options, self._ids, self._breaker = options, IDs(), Breaker()
        self._buckets = Buckets(options.share)
        self._refusals = Refusals() if options.remember else None

    def pool_options(self, given: dict[str, Any], retry: Any) -> dict[str, Any]:
        kept = {k: v for k, v in given.items() if k in KEPT or k.startswith("ssl")}
        timeout = self.options.timeout
        kept |= {"decode_responses": True, "max_connections": self.options.max_connections}
        return {**kept, "socket_timeout": timeout, "socket_connect_timeout": timeout, "retry": retry(NoBackoff(), 0)}

    def begin(self, call: Call) -> float:
        """Prepares a call, and returns its deadline. It raises if the server has not answered the last calls."""
        if not self._breaker.admit(time.monotonic()):
            raise errors.ConnectionError("the server has not answered the last calls")
        if self.options.retries > 0 and call.may_have_id:
            call.words += ["ID", self._ids.next()]
        return time.monotonic() + self.options.timeout + call.wait

    def observe(self, call: Call, decision: Decision | None, error: BaseException | None = None) -> None:
        if self.options.observe:
            self.options.observe(str(call.words[0]), decision, error)

    def fallback(self, call: Call, error: BaseException) -> Decision:
        """Decides a call without the server, or raises the error if it is a mistake."""
        if not no_answer(error):
            self.observe(call, None, error)
            raise error
        d = Decision(self.options.on_error == "allow")
        if self.options.on_error == "local":
            d = self._buckets.take(call, time.monotonic())
        d = replace(d, cause=error)
        self.observe(call, d)
        return d

    def do(self, limit: Limit, quantity: int = 1, **options: Any) -> One:
        """Takes a quantity from a limit, such as fixed("user:42", 100, 3600)."""
        return self._decide(calls.new_call(limit, quantity, **options))

    def throttle(self, key: str, quantity: int = 1, *, burst: int, count: int, period: float, **options: Any) -> One:
        """Takes from a bucket of burst tokens, which gets count tokens back in each period."""
        return self.do(calls.throttle(key, burst=burst, count=count, period=period), quantity, **options)

    def take(self, policy: str, subject: str, quantity: int = 1, **options: Any) -> One:
        """Takes from the limits of a policy."""
        return self.do(calls.policy(policy, subject), quantity, **options)

    def all(self, parts: Sequence[Part], *, peek: bool = False, wait: float = 0.0) -> Several:
        """Takes from several limits, or from none. The second result has a decision for each part."""
        return self._decide_all(calls.new_all(parts, peek, wait))

    def _decide(self, call: Call) -> One:
        raise NotImplementedError

    def _decide_all(self, call: Call) -> Several:
        raise NotImplementedError

    def _recall(self, call: Call) -> Decision | None:
        d = self._refusals.find(call, time.monotonic()) if self._refusals else None
        if d:
            self.observe(call, d)
        return d

    def _decided(self, call: Call, reply: Any) -> Decision:
        d = calls.decision(reply)
        if self._refusals:
            self._refusals.note(call, d, time.monotonic())
        if call.settles:
            d = replace(d, taken=0, corrected=d.taken)
        self.observe(call, d)
        return d

    def _all_decided(self, call: Call, reply: Any) -> tuple[Decision, list[Decision]]:
        d, each = calls.decisions(reply)
        self.observe(call, d)
        return d, each
