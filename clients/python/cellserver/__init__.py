"""Limits rates with a cellserver, through redis-py.

    limiter = cellserver.Limiter(redis.Redis())
    d = limiter.throttle("mail:42", burst=16, count=30, period=60)
    if not d.allowed:
        print("try again in", d.retry_after, "s")

A call that the server cannot decide raises nothing: Options.on_error decides, and cause of the decision says why. An
exception means that the call is wrong, or not permitted. cellserver.aio has the same for asyncio.
"""

from ._calls import NEVER, Decision, Limit, Part, fixed, no_answer, policy, quota, sliding, sliding_log, throttle
from ._limiter import Options
from ._sync import Hold, Lease, Limiter

__all__ = ["NEVER", "Decision", "Hold", "Lease", "Limit", "Limiter", "Options", "Part", "fixed", "no_answer", "policy",
           "quota", "sliding", "sliding_log", "throttle"]
