"""clients/contract/contract.json, which all clients obey, with both limiters."""

import asyncio
import dataclasses
import json

import cellserver
import cellserver.aio
import pytest
import redis
import redis.asyncio
from cellserver import _calls, _outage, http
from conftest import CONTRACT

contract = json.loads((CONTRACT / "contract.json").read_text())
patient = {"timeout": 60}


def limit_of(call):
    key, limit, period = call.get("key"), call.get("limit"), call.get("period")
    match call["method"]:
        case "throttle":
            return cellserver.throttle(key, burst=call["burst"], count=call["count"], period=period)
        case "fixed":
            return cellserver.fixed(key, limit, period)
        case "sliding":
            return cellserver.sliding(key, limit, period)
        case "slidinglog":
            return cellserver.sliding_log(key, limit, period)
        case "quota":
            return cellserver.quota(key, limit, call["unit"])
        case "take":
            return cellserver.policy(call["policy"], call["subject"])


class Now:
    """The asyncio limiter as if it were synchronous."""

    def __init__(self, of, loop):
        self._of, self._loop = of, loop

    def __getattr__(self, name):
        def call(*args, **options):
            result = self._loop.run_until_complete(getattr(self._of, name)(*args, **options))
            if isinstance(result, tuple) and result[0] is not None and not isinstance(result[0], cellserver.Decision):
                return Now(result[0], self._loop), *result[1:]
            return result

        return call


@pytest.fixture(params=["sync", "asyncio"])
def kind(request):
    return request.param


@pytest.fixture
def make(kind):
    """Makes a limiter of the kind."""
    loop, made = asyncio.new_event_loop(), []

    def new(port, **options):
        options = cellserver.Options(**{**patient, **options})
        if kind == "sync":
            made.append(cellserver.Limiter(redis.Redis(port=port, protocol=2), options))
            return made[-1]
        made.append(Now(cellserver.aio.Limiter(redis.asyncio.Redis(port=port, protocol=2), options), loop))
        return made[-1]

    yield new
    for limiter in made:
        limiter.close() if kind == "sync" else limiter.aclose()
    loop.close()


def compare(case, got, want):
    """Compares a decision of the real server, whose times may be up to a minute shorter than in want."""
    got = milliseconds(got)
    for name in ("retryAfter", "resetAfter"):
        if want[name] > 0 and (case.get("anytime") or want[name] - 60_000 < got[name] <= want[name] + case.get("slack", 0)):
            got[name] = want[name]
    assert got == {"corrected": 0, **want}


def milliseconds(d):
    assert d.cause is None
    retry = -1 if d.retry_after == cellserver.NEVER else round(d.retry_after * 1000)
    return {"allowed": d.allowed, "limit": d.limit, "remaining": d.remaining, "retryAfter": retry,
            "resetAfter": round(d.reset_after * 1000), "taken": d.taken, "corrected": d.corrected}


def compare_words(got, want):
    assert [g if w == "*" else w for g, w in zip(got, want.split())] == got and len(got) == len(want.split())


@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize("case", contract["cases"], ids=lambda c: c["name"])
def test_calls(shared, make, case, retries):
    limiter = make(shared.port, retries=retries)
    shared.ask("FLUSHALL", *case.get("before", ()))
    following, call = shared.listen(), case["call"]
    words = case["words"] + (" ID *" if retries and case.get("id", True) else "")
    match call["method"]:
        case "all":
            parts = [cellserver.Part(limit_of(p), p["quantity"], p.get("force", False)) for p in call["parts"]]
            d, each = limiter.all(parts)
            for got, want in zip(each, case["decisions"], strict=True):
                compare(case, got, want)
        case "hold":
            hold, d = limiter.hold(call["policy"], call["subject"], call["quantity"], call["ttl"])
            compare_words(following(), words)
            compare(case, hold.settle(case["settle"]), case["settled"])
            words = case["settleWords"]
        case "acquire":
            lease, d = limiter.acquire(call["key"], call["limit"], call["ttl"])
            if lease:
                compare_words(following(), words)
                lease.release()
                words = case["releaseWords"]
        case _:
            d = limiter.do(limit_of(call), call["quantity"], **call.get("options", {}))
    compare(case, d, case["decision"])
    compare_words(following(), words)


@pytest.mark.parametrize("case", contract["cases"], ids=lambda c: c["name"])
def test_replies(case):
    call = case["call"]
    if call["method"] == "all":
        return
    d = _calls.decision(case["reply"])
    assert milliseconds(d) == {"corrected": 0, **case["decision"]}
    if "fields" in case:
        assert dict(http.fields(call["key"], limit_of(call), d)) == case["fields"]


@pytest.mark.parametrize("error", contract["errors"], ids=lambda e: e["reply"].split()[0])
def test_errors(make, refuser, error):
    limiter = make(refuser(error["reply"]), retries=0)
    try:
        d = limiter.throttle("k", burst=1, count=1, period=60)
    except redis.RedisError:
        assert error["means"] == "mistake"
    else:
        assert error["means"] == "no answer" and d.allowed and d.cause is not None


def test_refusals():
    refusals, limit = _outage.Refusals(), limit_of(contract["refusals"]["limit"])
    for step in contract["refusals"]["steps"]:
        call, now = _calls.new_call(limit, step["quantity"], **step.get("options", {})), step["at"] / 1000
        d = refusals.find(call, now)
        if "reply" in step:
            assert d is None
            refusals.note(call, _calls.decision(step["reply"]), now)
        else:
            assert d.remembered and milliseconds(d) == {"corrected": 0, **step["decision"]}
    refused = cellserver.Decision(False, retry_after=3600)
    for n in range(refusals.MOST + 100):
        refusals.note(_calls.new_call(cellserver.fixed(str(n), 1, 3600), 1), refused, 3)
    assert len(refusals.by_limit) == refusals.MOST
    refusals.note(_calls.new_call(cellserver.fixed("late", 1, 3600), 1), refused, 5)
    assert len(refusals.by_limit) == 1


def test_remember(shared, make):
    shared.ask("FLUSHALL")
    limiter, following = make(shared.port, remember=True), shared.listen()
    decisions = [limiter.do(cellserver.fixed("k", size, 3600)) for size in (1, 1, 1, 2)]
    assert [(d.allowed, d.remembered) for d in decisions] == [(True, False), (False, False), (False, True), (True, False)]
    assert [following()[2] for _ in range(3)] == ["1", "1", "2"]
