"""Middleware for ASGI, such as FastAPI and Starlette, and for WSGI, such as Flask and Django."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any, Awaitable, Callable, Iterable, MutableMapping

from ._calls import NEVER, Decision, Limit, decision, members, new_call, policy
from ._sync import Limiter
from .aio import Limiter as AsyncLimiter

PROBLEMS = "https://iana.org/assignments/http-problem-types#"


def fields(name: str, limit: Limit, d: Decision) -> list[tuple[str, str]]:
    """The fields of a response by a limit of the program."""
    result = []
    if d.cause is None:
        window = f";w={math.ceil(limit.period)}" if limit.period >= 1 and limit.kind != "QUOTA" else ""
        more = 0.0
        if not d.allowed:
            more = 0.0 if d.retry_after == NEVER else d.retry_after
        elif d.remaining < d.limit and limit.kind == "THROTTLE":
            more = d.reset_after - (d.limit - d.remaining - 1) * (limit.period / d.limit)
        elif d.remaining < d.limit and limit.kind in ("FIXED", "QUOTA"):
            more = d.reset_after
        wait = f";t={math.ceil(round(more, 6))}" if more > 0 else ""
        result.append(("RateLimit-Policy", f'"{name}";q={d.limit}{window}'))
        result.append(("RateLimit", f'"{name}";r={d.remaining}{wait}'))
    if not d.allowed and 0 < d.retry_after < NEVER:
        result.append(("Retry-After", str(math.ceil(d.retry_after))))
    return result


def _verbose(reply: Any) -> tuple[Decision, str, list[tuple[str, str]]]:
    """Reads the reply to CL.TAKE with VERBOSE."""
    found = members(reply)
    d = replace(decision(found["decision"]), allowed=bool(found["allowed"]))
    return d, found["decided_by"], list(members(found["fields"]).items())


def _refusal(name: str, d: Decision, by: str) -> tuple[str, bytes]:
    """The status and the body of a response to a request that is refused."""
    status, kind = "429 Too Many Requests", "quota-exceeded"
    title = "Request cannot be satisfied as assigned quota has been exceeded"
    if d.cause and not d.limit:
        status, kind = "503 Service Unavailable", "temporary-reduced-capacity"
        title = "Request cannot be satisfied due to temporary server capacity constraints"
    elif by == "override":
        status, kind, title = "403 Forbidden", "", "Forbidden"
    elif by == "ban":
        kind, title = "abnormal-usage-detected", "Request not satisfied due to detection of abnormal request pattern"
    elif d.retry_after == NEVER:
        status = "413 Content Too Large"
    kind = PROBLEMS + kind if kind else "about:blank"
    body = {"type": kind, "title": title, "status": int(status[:3]), "policy": name}
    return status, json.dumps(body).encode() + b"\n"


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class RateLimit:
    """ASGI middleware: limits requests by a policy, or by a limit of the program.

    by returns the subject of a request for the policy with this name, or a Limit: app.add_middleware(RateLimit,
    limiter=limiter, name="api", by=user). Refused requests get status 429; without an answer and with on_error
    "deny", 503.
    """

    def __init__(self, app: App, *, limiter: AsyncLimiter, name: str, by: Callable[[Scope], str | Limit]) -> None:
        self._app, self._limiter, self._name, self._by = app, limiter, name, by

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        by = self._by(scope)
        d, decided_by, found = await self._decide(by)
        headers = [(k.lower().encode(), v.encode()) for k, v in found]

        async def send_with_fields(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *headers]
            await send(message)

        if d.allowed:
            return await self._app(scope, receive, send_with_fields)
        status, body = _refusal(self._name, d, decided_by)
        headers.append((b"content-type", b"application/problem+json"))
        await send_with_fields({"type": "http.response.start", "status": int(status[:3])})
        await send({"type": "http.response.body", "body": body})

    async def _decide(self, by: str | Limit) -> tuple[Decision, str, list[tuple[str, str]]]:
        if isinstance(by, Limit):
            d = await self._limiter.do(by)
            return d, by.kind, fields(self._name, by, d)
        call = new_call(policy(self._name, by), 1, "VERBOSE")
        try:
            return _verbose(await self._limiter.ask(call))
        except Exception as error:
            return self._limiter.fallback(call, error), "", []


class WSGIRateLimit:
    """WSGI middleware, with the parameters of RateLimit and the synchronous limiter. by gets the environment."""

    def __init__(self, app: Any, *, limiter: Limiter, name: str, by: Callable[[dict[str, Any]], str | Limit]) -> None:
        self._app, self._limiter, self._name, self._by = app, limiter, name, by

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        d, decided_by, found = self._decide(self._by(environ))
        if not d.allowed:
            status, body = _refusal(self._name, d, decided_by)
            start_response(status, [*found, ("Content-Type", "application/problem+json")])
            return [body]
        result: Iterable[bytes] = self._app(
            environ, lambda status, headers, *more: start_response(status, [*headers, *found], *more)
        )
        return result

    def _decide(self, by: str | Limit) -> tuple[Decision, str, list[tuple[str, str]]]:
        if isinstance(by, Limit):
            d = self._limiter.do(by)
            return d, by.kind, fields(self._name, by, d)
        call = new_call(policy(self._name, by), 1, "VERBOSE")
        try:
            return _verbose(self._limiter.ask(call))
        except Exception as error:
            return self._limiter.fallback(call, error), "", []
