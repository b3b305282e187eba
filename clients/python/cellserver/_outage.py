"""What happens while the server does not answer."""

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
        """Removes full buckets, which are as good as none, at most once a second."""
        if now - self._swept < 1:
            return False
        self._swept = now
        for b in self.by_key.values():
            b.fill(now)
        self.by_key = {k: b for k, b in self.by_key.items() if b.tokens < b.size}
        return len(self.by_key) < MOST_BUCKETS
