"""Middleware and storages with the real frameworks."""

import time

import cellserver
import cellserver.aio
import cellserver.limits_storage  # noqa: F401
import limits
import pytest
import redis
import redis.asyncio
from cellserver.http import RateLimit, WSGIRateLimit
from fastapi import FastAPI
from flask import Flask
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter
from starlette.testclient import TestClient

options = cellserver.Options(timeout=60, on_error="deny")


def limits_of(name):
    """The subject of a policy, or a limit of the program."""
    return "alice" if name == "tiny" else cellserver.fixed("http:alice", 1, 3600)


def check(name, first, second):
    assert first.status_code == 200 and second.status_code == 429
    for response in first, second:
        assert response.headers["RateLimit-Policy"] == f'"{name}";q=1;w=3600'
        assert response.headers["RateLimit"].startswith(f'"{name}";r=0;t=3')
    assert "Retry-After" not in first.headers and 3500 < int(second.headers["Retry-After"]) <= 3600
    assert second.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("name", ["tiny", "mine"])
def test_fastapi(shared, name):
    shared.ask("FLUSHALL")
    app = FastAPI()
    limiter = cellserver.aio.Limiter(redis.asyncio.Redis(port=shared.port), options)
    app.add_middleware(RateLimit, limiter=limiter, name=name, by=lambda scope: limits_of(name))
    app.get("/")(lambda: "served")
    with TestClient(app) as client:
        check(name, client.get("/"), client.get("/"))


@pytest.mark.parametrize("name", ["tiny", "mine"])
def test_flask(shared, name):
    shared.ask("FLUSHALL")
    app = Flask(__name__)
    app.get("/")(lambda: "served")
    limiter = cellserver.Limiter(redis.Redis(port=shared.port), options)
    app.wsgi_app = WSGIRateLimit(app.wsgi_app, limiter=limiter, name=name, by=lambda environ: limits_of(name))
    client = app.test_client()
    check(name, client.get("/"), client.get("/"))


def test_no_server():
    app = FastAPI()
    limiter = cellserver.aio.Limiter(redis.asyncio.Redis(port=1), options)
    app.add_middleware(RateLimit, limiter=limiter, name="tiny", by=lambda scope: "alice")
    with TestClient(app) as client:
        assert client.get("/").status_code == 503


@pytest.fixture
def storage(shared):
    shared.ask("FLUSHALL")
    return storage_from_string(f"cellserver://127.0.0.1:{shared.port}", socket_timeout=60)


@pytest.mark.parametrize("strategy", [FixedWindowRateLimiter, MovingWindowRateLimiter])
def test_limits(storage, strategy):
    limiter, item = strategy(storage), limits.parse("3/hour")
    assert limiter.get_window_stats(item, "alice").remaining == 3
    assert [limiter.hit(item, "alice") for _ in range(4)] == [True, True, True, False]
    assert not limiter.test(item, "alice") and limiter.test(item, "bob")
    stats = limiter.get_window_stats(item, "alice")
    assert stats.remaining == 0 and 3500 < stats.reset_time - time.time() <= 3601
    limiter.clear(item, "alice")
    assert limiter.hit(item, "alice", cost=2) and not limiter.hit(item, "alice", cost=2)


def test_limits_storage(storage, shared):
    assert storage.check() and storage.get("none") == 0
    with pytest.raises(NotImplementedError):
        storage.reset()
    following = shared.listen()
    assert storage.incr("counted", 60) == 1 and following()[0] == "CL.FIXED"
    assert storage.acquire_entry("log", 1, 60) and following()[0] == "CL.SLIDINGLOG"
    assert storage.get_moving_window("log", 1, 60)[1] == 1
