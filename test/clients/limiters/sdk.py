"""Tests the rate limits of fastapi-redis-sdk, with its default settings: sdk.py port

The results are printed, so that run.sh can compare those of cellserver with those of redis-server, where the library uses a
script if there is no INCREX."""

import os
import sys
import warnings

os.environ["REDIS_URL"] = f"redis://127.0.0.1:{sys.argv[1]}"
warnings.simplefilter("ignore")

import redis
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from redis_fastapi import FastAPIRedis, rate_limit

app = FastAPI()
FastAPIRedis(app).lifespan().rate_limiting()


def user(request):
    return request.headers["x-user"]


def page(path, rate, **options):
    app.get(path, dependencies=[Depends(rate_limit(rate, identifier=user, fail_closed=True, **options))])(lambda: "served")


page("/page", "3/hour")
page("/other", "1/hour")
page("/heavy", "5/hour", cost=2)


def ask(client, path, who="ann"):
    response = client.get(path, headers={"x-user": who})
    headers = response.headers
    reset = headers["x-ratelimit-reset"]
    assert reset.isdigit()
    if response.status_code == 429:
        assert 3000 < int(headers["retry-after"]) <= 3600, headers
    print(path, who, response.status_code, headers["x-ratelimit-limit"], headers["x-ratelimit-remaining"])
    return response.status_code, int(headers["x-ratelimit-remaining"])


with TestClient(app) as client:
    assert [ask(client, "/page") for _ in range(5)] == [(200, 2), (200, 1), (200, 0), (429, 0), (429, 0)]
    assert [ask(client, "/page", "bob"), ask(client, "/other"), ask(client, "/other")] == [(200, 2), (200, 0), (429, 0)]
    assert [ask(client, "/heavy") for _ in range(3)] == [(200, 3), (200, 1), (429, 1)]

with redis.Redis(port=int(sys.argv[1]), decode_responses=True) as r:
    for key in sorted(r.keys()):
        assert 3000 < r.ttl(key) <= 3600
        print(key, r.get(key))
