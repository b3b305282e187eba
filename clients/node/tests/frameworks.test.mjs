// Middleware and stores with the real frameworks.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Limiter, fixed } from "cellserver";
import { rateLimit } from "cellserver/express";
import { CellserverStore } from "cellserver/express-rate-limit";
import { RateLimiterCellserver } from "cellserver/rate-limiter-flexible";
import express from "express";
import { rateLimit as expressRateLimit } from "express-rate-limit";
import { clients, start } from "./server.mjs";

let server;
before(async () => (server = await start()));
after(() => server.child.kill("SIGKILL"));

async function serve(middleware, use) {
  const app = express().use(middleware).get("/", (_, response) => response.send("served"));
  const listening = await new Promise((resolve) => {
    const l = app.listen(0, "127.0.0.1", () => resolve(l));
  });
  await use(`http://127.0.0.1:${listening.address().port}/`);
  listening.closeAllConnections();
  listening.close();
}

for (const [name, connect] of Object.entries(clients)) {
  for (const by of ["tiny", "mine"]) {
    test(`${name}: Express, by ${by}`, async () => {
      await server.ask("FLUSHALL");
      const at = await connect(server.port);
      const limiter = new Limiter(at.client, { timeout: 60_000, onError: "deny" });
      await serve(rateLimit(limiter, by, () => (by === "tiny" ? "alice" : fixed("http:alice", 1, 3_600_000))), async (url) => {
        for (const status of [200, 429]) {
          const { status: got, headers } = await fetch(url);
          assert.equal(got, status);
          assert.equal(headers.get("RateLimit-Policy"), `"${by}";q=1;w=3600`);
          assert.match(headers.get("RateLimit"), new RegExp(`^"${by}";r=0;t=3`));
          assert.equal(headers.has("Retry-After"), status === 429);
          if (status === 429) assert.equal(headers.get("Content-Type"), "application/problem+json");
        }
      });
      at.end();
    });
  }

  test(`${name}: express-rate-limit`, async () => {
    await server.ask("FLUSHALL");
    const at = await connect(server.port);
    const store = new CellserverStore(at.client, { timeout: 60_000 });
    await serve(expressRateLimit({ windowMs: 3_600_000, limit: 3, store, standardHeaders: "draft-8" }), async (url) => {
      const statuses = [];
      for (let i = 0; i < 5; i++) statuses.push((await fetch(url)).status);
      assert.deepEqual(statuses, [200, 200, 200, 429, 429]);
    });
    const before = await store.increment("bob");
    assert.equal(before.totalHits, 1);
    assert.ok(before.resetTime - Date.now() > 3_500_000);
    assert.equal((await store.increment("bob")).totalHits, 2);
    await store.decrement("bob");
    assert.equal((await store.get("bob")).totalHits, 1);
    await store.resetKey("bob");
    assert.equal(await store.get("bob"), undefined);
    at.end();
  });

  test(`${name}: rate-limiter-flexible`, async () => {
    await server.ask("FLUSHALL");
    const at = await connect(server.port);
    const limiter = new RateLimiterCellserver({ storeClient: at.client, points: 3, duration: 1000, blockDuration: 5000, timeout: 60_000 });
    const consume = (points) => limiter.consume("alice", points).then((r) => [true, r], (r) => (r instanceof Error ? assert.fail(r) : [false, r]));
    const [allowed, first] = await consume(2);
    assert.ok(allowed && first.isFirstInDuration && first.consumedPoints === 2 && first.remainingPoints === 1);
    assert.ok(first.msBeforeNext > 900_000 && first.msBeforeNext <= 1_000_000);
    assert.equal((await limiter.reward("alice", 1)).consumedPoints, 1);
    assert.equal((await limiter.penalty("alice", 2)).consumedPoints, 3);
    const [second, refused] = await consume(1);
    assert.ok(!second && refused.msBeforeNext === 5_000_000, "one point too many blocks");
    assert.ok((await limiter.get("alice")).msBeforeNext > 4_000_000);
    await limiter.set("bob", 1, 300);
    assert.equal((await limiter.consume("bob")).consumedPoints, 2);
    assert.equal(await limiter.delete("alice"), true);
    assert.equal(await limiter.delete("alice"), false);
    assert.equal(await limiter.get("alice"), null);
    assert.throws(() => new RateLimiterCellserver({ storeClient: at.client, points: 3, duration: 0 }), /duration/);
    at.end();
  });
}

test("without a server", async () => {
  const at = await clients["node-redis 5"](1);
  await serve(rateLimit(new Limiter(at.client, { onError: "deny" }), "tiny", () => "alice"), async (url) => {
    assert.equal((await fetch(url)).status, 503);
  });
  at.end();
});
