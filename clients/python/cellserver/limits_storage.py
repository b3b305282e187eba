"""A storage for the library limits, which Flask-Limiter and slowapi use: storage_from_string("cellserver://host:port").

Import this module to register it. The fixed window is CL.FIXED, and the moving window CL.SLIDINGLOG.
"""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import redis
import redis.exceptions as errors
from limits.storage import MovingWindowSupport, Storage

from ._calls import fixed, members, new_call, sliding_log
from ._limiter import Options
from ._sync import Limiter

MANY = 1_000_000_000_000  # calls of a window, which limits itself


class CellserverStorage(Storage, MovingWindowSupport):
    """Keeps the windows of limits in a cellserver."""

    STORAGE_SCHEME = ["cellserver"]

    def __init__(self, uri: str, wrap_exceptions: bool = False, **options: Any) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self._redis = redis.Redis.from_url(urlunsplit(urlsplit(uri)._replace(scheme="redis")), **options)
        self._limiter = Limiter(self._redis, Options(timeout=options.get("socket_timeout", 0.1), on_error="deny"))

    @property
    def base_exceptions(self) -> type[Exception] | tuple[type[Exception], ...]:
        return errors.RedisError

    def _ask(self, limit: Any, amount: int, **options: Any) -> list[int]:
        reply: list[int] = self._limiter.ask(new_call(limit, amount, **options))
        return reply

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        _, limit, remaining, *_ = self._ask(fixed(key, MANY, expiry), amount)
        return limit - remaining

    def _inspect(self, key: str) -> dict[str, Any]:
        client: Any = self._redis
        reply = client.execute_command("CL.INSPECT", key)
        return {} if reply is None else members(reply)

    def get(self, key: str) -> int:
        return int(members(self._inspect(key).get("state", [])).get("used", 0))

    def get_expiry(self, key: str) -> float:
        return time.time() + max(0, int(self._inspect(key).get("expires_ms", 0))) / 1000

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return self._ask(sliding_log(key, limit, expiry), amount)[0] == 0

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        state = members(self._inspect(key).get("state", []))
        if not state:
            return time.time(), 0
        _, size, remaining, *_ = self._ask(sliding_log(key, limit, expiry), 0, peek=True)
        return int(state["oldest"]) / 1e9, size - remaining

    def check(self) -> bool:
        try:
            return bool(self._redis.ping())
        except errors.RedisError:
            return False

    def reset(self) -> int | None:
        raise NotImplementedError("it would remove the keys of others: use clear, or FLUSHDB of a database of its own")

    def clear(self, key: str) -> None:
        self._redis.delete(key)
