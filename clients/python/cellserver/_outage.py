"""Decisions without the server: while it does not answer, and refusals that are remembered."""

from __future__ import annotations

import math
import threading
from dataclasses import replace

from ._calls import NEVER, Call, Decision, Limit, Take

FAILURES = 5  # calls without a reply, one after the other, before calls fail at once
PROBE = 0.1  # seconds between calls to a server that does not answer
MOST_BUCKETS = 10_000


class Breaker:
    """Lets one call in 100 ms pass after five calls without a reply."""

    def __init__(self) -> None:
        self._lock, self._failed, self._next = threading.Lock(), 0, 0.0

    def admit(self, now: float) -> bool:
        with self._lock:
            if self._failed >= FAILURES:
                if now < self._next:
                    return False
                self._next = now + PROBE
            return True

    def count(self, lost: bool) -> None:
        with self._lock:
            self._failed = self._failed + 1 if lost else 0


class Bucket:
    def __init__(self, tokens: float, at: float) -> None:
        self.tokens, self.at, self.size, self.rate = tokens, at, tokens, 0.0

    def fill(self, now: float) -> None:
        self.tokens = min(self.size, self.tokens + self.rate * max(0.0, now - self.at))
        self.at = now

    def wait(self, take: Take) -> float:
        needs = (min(take.quantity, 1) if take.upto else take.quantity) + take.leave
        if take.force or take.quantity < 0 or needs <= self.tokens:
            return 0.0
        return NEVER if needs > self.size else (needs - self.tokens) / self.rate


class Buckets:
    """Token buckets of this process, with a share of each limit."""

    def __init__(self, share: float) -> None:
        self._lock, self._share, self._swept = threading.Lock(), share, -math.inf
        self.by_key: dict[str, Bucket] = {}

    def take(self, call: Call, now: float) -> Decision:
        """Takes from the buckets of all limits of a call, or from none."""
        with self._lock:
            found = [self._find(t.limit, now) for t in call.takes]
            buckets = [b for b in found if b]
            if not buckets or len(buckets) < len(found):
                return Decision(False, retry_after=NEVER)
            wait = max(b.wait(t) for b, t in zip(buckets, call.takes))
            d = Decision(wait == 0, retry_after=wait)
            for b, t in zip(buckets, call.takes):
                if d.allowed and not t.peek:
                    taken = min(t.quantity, math.floor(b.tokens - t.leave)) if t.upto else t.quantity
                    b.tokens = min(b.size, b.tokens - taken)
                    d = replace(d, taken=taken if t.upto else 0)
                left = max(0, math.floor(b.tokens))
                d = replace(d, limit=math.floor(b.size), remaining=left, reset_after=(b.size - b.tokens) / b.rate)
            return d

    def _find(self, limit: Limit, now: float) -> Bucket | None:
        size = self._share * limit.size
        if limit.period <= 0 or size < 1:
            return None
        key = f"{limit.kind} {limit.key}"
        b = self.by_key.get(key)
        if b is None:
            if len(self.by_key) >= MOST_BUCKETS and not self._sweep(now):
                return None
            b = self.by_key[key] = Bucket(size, now)
        b.size, b.rate = size, size / limit.period
        b.fill(now)
        return b

    def _sweep(self, now: float) -> bool:
        """Removes full buckets, at most once a second: a new bucket is full too."""
        if now - self._swept < 1:
            return False
        self._swept = now
        for b in self.by_key.values():
            b.fill(now)
        self.by_key = {k: b for k, b in self.by_key.items() if b.tokens < b.size}
        return len(self.by_key) < MOST_BUCKETS


class Refusals:
    """Calls that the server has refused, each until it would be allowed, and for a second at most."""

    LONGEST = 1.0
    MOST = 10_000

    def __init__(self) -> None:
        self._lock, self._swept = threading.Lock(), -math.inf
        self.by_limit: dict[Limit, tuple[int, float, Decision]] = {}  # the smallest quantity, when, and the decision

    def find(self, call: Call, now: float) -> Decision | None:
        """The decision about a call that would be refused as one before."""
        known = self.by_limit.get(call.takes[0].limit) if call.plain else None
        if not known or call.takes[0].quantity < known[0] or now >= self._until(known):
            return None
        d, passed = known[2], now - known[1]
        return replace(d, retry_after=d.retry_after - passed, reset_after=d.reset_after - passed, remembered=True)

    def _until(self, known: tuple[int, float, Decision]) -> float:
        return known[1] + min(self.LONGEST, known[2].retry_after)

    def note(self, call: Call, d: Decision, now: float) -> None:
        """Remembers the refusal of a call. After a refund, it forgets."""
        if len(call.takes) != 1:
            return
        limit, quantity = call.takes[0].limit, call.takes[0].quantity
        with self._lock:
            if quantity < 0:
                self.by_limit.pop(limit, None)
            if not call.plain or d.allowed or not 0 < d.retry_after < NEVER:
                return
            if len(self.by_limit) >= self.MOST and now - self._swept >= self.LONGEST / 10:
                self._swept = now
                self.by_limit = {k: known for k, known in self.by_limit.items() if now < self._until(known)}
            if len(self.by_limit) < self.MOST:
                self.by_limit[limit] = quantity, now, d
