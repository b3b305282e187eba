"""Tests django-ratelimit and the throttles of Django REST framework, with their default settings: pages.py port

Both keep their counters in Django's cache, here with Django's own Redis backend. The results are printed, so that run.sh can
compare those of cellserver with those of redis-server."""

import sys
import time

import django
import redis
from django.conf import settings

port = int(sys.argv[1])
settings.configure(
    ALLOWED_HOSTS=["testserver"],
    CACHES={"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": f"redis://127.0.0.1:{port}"}},
    LOGGING_CONFIG=None,
    REST_FRAMEWORK={"DEFAULT_THROTTLE_RATES": {"anon": "3/day"}, "UNAUTHENTICATED_USER": None},
    ROOT_URLCONF=__name__,
    SECRET_KEY="x",
)
django.setup()

from django.core.cache import cache
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import path
from django_ratelimit.core import get_usage
from django_ratelimit.decorators import ratelimit
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.throttling import AnonRateThrottle
from rest_framework.views import APIView

USER = "header:x-user"


@ratelimit(key=USER, rate="5/d")
def page(request):
    return HttpResponse("welcome")


@ratelimit(key=USER, rate="2/d", method="POST")
def form(request):
    return HttpResponse("welcome")


@ratelimit(group="shared", key=USER, rate="3/d", block=False)
def shared(request):
    return HttpResponse("too often" if request.limited else "welcome")


@ratelimit(key=USER, rate="0/d")
def closed(request):
    return HttpResponse("welcome")


class Api(APIView):
    authentication_classes = []
    permission_classes = []
    renderer_classes = [JSONRenderer]
    throttle_classes = [AnonRateThrottle]

    def get(self, request):
        return Response("welcome")


urlpatterns = [
    path("page", page),
    path("form", form),
    path("shared/one", shared),
    path("shared/two", shared),
    path("closed", closed),
    path("api", Api.as_view()),
]


def expect(what, got, want):
    assert got == want, f"{what}: {got}, not {want}"
    print(what, "-", got)


def visit(url, user, method="get"):
    answer = getattr(Client(), method)(url, headers={"x-user": user})
    return answer.content.decode() if answer.status_code == 200 else answer.status_code


def usage(user):
    return get_usage(RequestFactory().get("/", headers={"x-user": user}), group="usage", key=USER, rate="5/d")


def user_with_time(name):
    """Returns a user whose window of a day does not end during this test. The windows of users end at different times."""
    return next(user for i in range(1000) if usage(user := f"{name}{i}")["time_left"] > 3600)


def visits():
    alice, bob = user_with_time("alice"), user_with_time("bob")
    expect("alice, a limit of 5", [visit("/page", alice) for _ in range(7)], ["welcome"] * 5 + [403] * 2)
    expect("bob has a separate limit", visit("/page", bob), "welcome")
    expect("only POST counts", [visit("/form", alice, m) for m in ["get", "post", "get", "post", "post", "get"]],
           ["welcome", "welcome", "welcome", "welcome", 403, "welcome"])
    expect("two pages share a limit", [visit(f"/shared/{n}", alice) for n in ["one", "two", "one", "two"]], ["welcome"] * 3 + ["too often"])
    expect("a limit of 0", visit("/closed", alice), 403)


def counts():
    carol = user_with_time("carol")
    request = RequestFactory().get("/", headers={"x-user": carol})
    for n in [1, 2, 3]:
        used = get_usage(request, group="usage", key=USER, rate="5/d", increment=True)
        expect("an increment", (used["count"], used["limit"], used["should_limit"]), (n, 5, False))
    expect("a check without an increment", [usage(carol)["count"] for _ in range(2)], [3, 3])
    with redis.Redis(port=port) as r:
        kept = [r.ttl(key) for key in r.scan_iter("*rl:*")]
        expect("every counter is kept for a day and 5 s", all(86300 < ttl <= 86405 for ttl in kept) and len(kept) > 5, True)


def throttles():
    def get(address):
        return Client().get("/api", REMOTE_ADDR=address)

    expect("an address, a limit of 3", [get("10.0.0.1").status_code for _ in range(5)], [200] * 3 + [429] * 2)
    expect("Retry-After is a day", 86300 < int(get("10.0.0.1").headers["Retry-After"]) <= 86400, True)
    expect("another address", get("10.0.0.2").status_code, 200)


def expiry():
    assert cache.add("short", 7, 1)
    late = time.monotonic() + 20
    while cache.get("short") is not None:
        assert time.monotonic() < late, "the key does not expire"
        time.sleep(0.02)
    try:
        cache.incr("short")
        raise AssertionError("an expired counter was incremented")
    except ValueError:
        expect("a second later", cache.add("short", 7, 1000), True)
    expect("the new counter", [cache.incr("short"), cache.add("short", 1), cache.get("short")], [8, False, 8])


for scenario in [throttles, visits, counts, expiry]:
    scenario()
