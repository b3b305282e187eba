"""Makes the words of calls, and decisions of replies. It uses no connection."""

from __future__ import annotations

import itertools
import math
import secrets
from dataclasses import dataclass, field
from typing import Any, Sequence, Union

import redis.exceptions as errors

Word = Union[str, int]

NEVER = math.inf  # the retry_after of a call that will never be allowed, because its quantity is above the limit


@dataclass(frozen=True)
class Decision:
    """The answer to a call. Times are in seconds."""

    allowed: bool
    limit: int = 0
    remaining: int = 0
    retry_after: float = 0.0  # until the call would be allowed: 0 if it is allowed, NEVER if it never will be
    reset_after: float = 0.0  # until the limit has fully recovered
    taken: int = 0  # by a call with upto
    corrected: int = 0  # by Hold.settle; negative if it was given back
    cause: BaseException | None = None  # why on_error made the decision; None if the server did
    remembered: bool = False  # an earlier refusal, with Options.remember


@dataclass(frozen=True)
class Limit:
    """What a call takes from: a limiter and its key, or a policy and its subject. The functions below make one."""

    kind: str
    key: str
    words: tuple[Word, ...]
    size: int = 0  # 0 if only the server knows it
    period: float = 0.0  # in which the size comes back; 0 if only the server knows it


def throttle(key: str, *, burst: int, count: int, period: float) -> Limit:
    """CL.THROTTLE: a bucket of burst tokens, which gets count tokens back in each period."""
    return Limit("THROTTLE", key, (burst - 1, count, seconds(period)), burst, period / count * burst if count else 0)


def fixed(key: str, limit: int, period: float) -> Limit:
    """CL.FIXED: windows that begin with a first call."""
    return Limit("FIXED", key, (limit, seconds(period)), limit, period)


def sliding(key: str, limit: int, period: float) -> Limit:
    """CL.SLIDING: a sliding window, estimated from two counters."""
    return Limit("SLIDING", key, (limit, seconds(period)), limit, period)


def sliding_log(key: str, limit: int, period: float) -> Limit:
    """CL.SLIDINGLOG: a sliding window, exactly."""
    return Limit("SLIDINGLOG", key, (limit, seconds(period)), limit, period)


def quota(key: str, limit: int, unit: str) -> Limit:
    """CL.QUOTA: per HOUR, DAY, WEEK, MONTH or YEAR, in UTC or in a time zone, as in DAY@Europe/Berlin."""
    return Limit("QUOTA", key, (limit, unit), limit, 366 * 86400.0 if limit else 0)


def policy(name: str, subject: str) -> Limit:
    """All limits of one of the server's policies, for a subject."""
    return Limit("TAKE", subject, (name,))


def seconds(period: float) -> str:
    """Writes a period as a word: in seconds, or in milliseconds, rounded up."""
    return str(int(period)) if period == int(period) else f"{math.ceil(period * 1000)}ms"


@dataclass
class Take:
    """A part of a call, for the local buckets."""

    limit: Limit
    quantity: int
    leave: int = 0
    peek: bool = False
    upto: bool = False
    force: bool = False


@dataclass
class Call:
    words: list[Word]
    takes: list[Take] = field(default_factory=list)
    wait: float = 0.0
    may_have_id: bool = True
    settles: bool = False
    plain: bool = False  # without options, and not a refund: its refusal may be remembered


@dataclass(frozen=True)
class Part:
    """One of the limits in a call of all. With force, the quantity is taken even if less remains."""

    limit: Limit
    quantity: int = 1
    force: bool = False


def new_call(
    limit: Limit, quantity: int, *more: Word, peek: bool = False, upto: bool = False, force: bool = False,
    leave: int = 0, wait: float = 0.0,
) -> Call:
    """The call of a limit, without ID."""
    words: list[Word] = ["CL." + limit.kind, limit.key, *limit.words, quantity]
    words += [word for word, given in (("PEEK", peek), ("UPTO", upto), ("FORCE", force)) if given]
    if leave:
        words += ["LEAVE", leave]
    if wait:
        words += ["WAIT", math.ceil(wait * 1000)]
    takes = [Take(limit, quantity, leave, peek, upto, force)]
    may_have_id = not peek and limit.kind != "ACQUIRE" and (not more or more[0] not in ("HOLD", "SETTLE"))
    plain = quantity > 0 and limit.kind != "ACQUIRE" and not (more or peek or upto or force or leave or wait)
    return Call([*words, *more, "MS"], takes, wait, may_have_id, "SETTLE" in more[:1], plain)


def new_all(parts: Sequence[Part], peek: bool, wait: float) -> Call:
    words: list[Word] = ["CL.ALL", len(parts)]
    for p in parts:
        words += [p.limit.kind, p.limit.key, *p.limit.words, p.quantity]
        if p.force:
            words.append("FORCE")
    if peek:
        words.append("PEEK")
    if wait:
        words += ["WAIT", math.ceil(wait * 1000)]
    return Call([*words, "MS"], [Take(p.limit, p.quantity, peek=peek, force=p.force) for p in parts], wait, not peek)


def decision(reply: Any) -> Decision:
    """Reads a decision whose times are milliseconds."""
    if not isinstance(reply, list) or not 5 <= len(reply) <= 6 or not all(isinstance(n, int) for n in reply):
        raise errors.InvalidResponse(f"the reply is {reply!r}")
    limited, limit, remaining, retry, reset, taken = reply if len(reply) == 6 else [*reply, 0]
    return Decision(not limited, limit, remaining, retry_after(limited, retry), reset / 1000, taken)


def retry_after(limited: int, retry: int) -> float:
    return 0.0 if not limited else NEVER if retry < 0 else retry / 1000


def decisions(reply: Any) -> tuple[Decision, list[Decision]]:
    """Reads the reply to CL.ALL."""
    if not isinstance(reply, list) or len(reply) < 3:
        raise errors.InvalidResponse(f"the reply is {reply!r}")
    return Decision(not reply[0], retry_after=retry_after(reply[0], reply[1])), [decision(r) for r in reply[2:]]


def members(reply: Any) -> dict[str, Any]:
    """Reads a map of RESP3, or of RESP2, with names as text."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2])
    return {k.decode() if isinstance(k, bytes) else str(k): v for k, v in pairs}


UNABLE = ("LOADING", "OOM", "MISCONF", "STOREDOWN", "STOREUNSURE", "STOREBUSY", "max number of clients reached")


def no_answer(error: BaseException) -> bool:
    """Whether an error means that the server did not decide. All other errors are mistakes of the program."""
    if isinstance(error, (errors.AuthenticationError, errors.AuthorizationError)):
        return False
    if isinstance(error, errors.ResponseError):
        text = str(error).removeprefix("ERR ")
        return isinstance(error, errors.OutOfMemoryError) or any(text == w or text.startswith(w + " ") for w in UNABLE)
    return isinstance(error, (errors.ConnectionError, errors.TimeoutError, OSError, TimeoutError))


def lost(error: BaseException) -> bool:
    """Whether there was no reply at all."""
    return no_answer(error) and not isinstance(error, (errors.ResponseError, errors.BusyLoadingError))


class IDs:
    """Makes words that no other call has."""

    def __init__(self) -> None:
        self._prefix, self._count = secrets.token_hex(8), itertools.count()

    def next(self) -> str:
        return f"{self._prefix}-{next(self._count):x}"
