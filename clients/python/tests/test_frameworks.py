"""Middleware and storages with the real frameworks."""

import pathlib
import re
import subprocess
import sys
import threading
import time
from wsgiref.simple_server import WSGIRequestHandler, make_server

import cellserver
import cellserver.aio
import cellserver.limits_storage  # noqa: F401
import django
import django.http
import django.urls
import httpx
import limits
import pytest
import redis
import redis.asyncio
import slowapi
from cellserver.http import RateLimit, WSGIRateLimit
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from fastapi import FastAPI, Request
from flask import Flask
from flask_limiter import Limiter as FlaskLimiter
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

MIGRATE = pathlib.Path(__file__).parents[3] / "docs" / "migrate.md"
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


async def served(request):
    return PlainTextResponse("served")


@pytest.mark.parametrize("name", ["tiny", "mine"])
def test_starlette(shared, name):
    shared.ask("FLUSHALL")
    limiter = cellserver.aio.Limiter(redis.asyncio.Redis(port=shared.port), options)
    limited = Middleware(RateLimit, limiter=limiter, name=name, by=lambda scope: limits_of(name))
    with TestClient(Starlette(routes=[Route("/", served)], middleware=[limited])) as client:
        check(name, client.get("/"), client.get("/"))


@pytest.mark.parametrize("name", ["tiny", "mine"])
def test_django(shared, name):
    """The application of wsgi.py, wrapped: requests go through a real server of the standard library."""
    shared.ask("FLUSHALL")
    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__)
        django.setup()
    limiter = cellserver.Limiter(redis.Redis(port=shared.port), options)
    application = WSGIRateLimit(get_wsgi_application(), limiter=limiter, name=name, by=lambda environ: limits_of(name))
    with make_server("127.0.0.1", 0, application, handler_class=Quiet) as server:
        threading.Thread(target=server.serve_forever).start()
        with httpx.Client(base_url=f"http://127.0.0.1:{server.server_port}") as client:
            check(name, client.get("/"), client.get("/"))
        server.shutdown()


class Quiet(WSGIRequestHandler):
    def log_message(self, *args):
        pass


urlpatterns = [django.urls.path("", lambda request: django.http.HttpResponse("served"))]  # of test_django


def test_flask_limiter(shared, storage):
    app = Flask(__name__)
    uri, settings_of = f"cellserver://127.0.0.1:{shared.port}", {"socket_timeout": 60}
    limiter = FlaskLimiter(
        lambda: "alice", app=app, storage_uri=uri, storage_options=settings_of, strategy="moving-window", headers_enabled=True
    )
    app.get("/")(limiter.limit("2/hour")(lambda: "served"))
    responses = [app.test_client().get("/") for _ in range(3)]
    assert [r.status_code for r in responses] == [200, 200, 429]
    assert [r.headers["X-RateLimit-Remaining"] for r in responses] == ["1", "0", "0"]
    assert 3500 < int(responses[2].headers["Retry-After"]) <= 3601


def test_slowapi(shared, storage):
    app = FastAPI()
    uri, settings_of = f"cellserver://127.0.0.1:{shared.port}", {"socket_timeout": 60}
    app.state.limiter = slowapi.Limiter(lambda request: "alice", storage_uri=uri, storage_options=settings_of)
    app.add_exception_handler(slowapi.errors.RateLimitExceeded, slowapi._rate_limit_exceeded_handler)

    @app.get("/")
    @app.state.limiter.limit("2/hour")
    def index(request: Request):
        return "served"

    with TestClient(app) as client:
        assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]


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


def test_docs(shared):
    """The programs of docs/migrate.md in Python print what they say."""
    programs = re.findall("```python limits_storage.py\n(.*?)```", MIGRATE.read_text(), re.DOTALL)
    assert programs
    for program in programs:
        shared.ask("FLUSHALL")
        command = [sys.executable, "-c", program.replace("6379", str(shared.port))]
        ran = subprocess.run(command, capture_output=True, text=True)
        assert ran.stdout.strip() == re.search("print\\(.*\\)  # (.*)", program)[1], ran.stderr
        assert shared.ask("DBSIZE") > 0
