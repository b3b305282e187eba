// Fastify and NestJS, and their own limiters with stores, each in the way in which their documents test applications.
import "reflect-metadata";
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import fastifyRateLimit from "@fastify/rate-limit";
import { Controller, Get, Module } from "@nestjs/common";
import { APP_GUARD, NestFactory } from "@nestjs/core";
import { ThrottlerGuard, ThrottlerModule } from "@nestjs/throttler";
import { Limiter, fixed } from "cellserver";
import { rateLimit, storeOf } from "cellserver/fastify";
import { CellserverStorage, RateLimitGuard } from "cellserver/nest";
import Fastify from "fastify";
import { clients, freePort, start } from "./server.mjs";

let server;
before(async () => (server = await start()));
after(() => server.child.kill("SIGKILL"));

const hour = 3_600_000;
const limitOf = (by) => () => (by === "tiny" ? "alice" : fixed("http:alice", 1, hour));

// check makes requests until the second is refused. ask returns status and headers.
async function check(by, ask) {
  for (const status of [200, 429]) {
    const [got, headers] = await ask();
    assert.equal(got, status);
    assert.equal(headers["ratelimit-policy"], `"${by}";q=1;w=3600`);
    assert.match(headers["ratelimit"], new RegExp(`^"${by}";r=0;t=3`));
    assert.equal("retry-after" in headers, status === 429);
    if (status === 429) assert.match(headers["content-type"], /^application\/problem\+json/);
  }
}

// withClient empties the server, and gives a client to the test.
async function withClient(use, port = server.port) {
  await server.ask("FLUSHALL");
  const { client, end } = await clients.ioredis(port);
  await use(client);
  end();
}

for (const by of ["tiny", "mine"]) {
  test(`Fastify, by ${by}`, () => withClient(async (client) => {
    const app = Fastify();
    app.addHook("onRequest", rateLimit(new Limiter(client, { timeout: 60_000 }), by, limitOf(by)));
    app.get("/", async () => "served");
    await check(by, async () => {
      const response = await app.inject("/");
      return [response.statusCode, response.headers];
    });
    await app.close();
  }));

  test(`NestJS, by ${by}`, () => withClient(async (client) => {
    const guard = new RateLimitGuard(new Limiter(client, { timeout: 60_000 }), by, limitOf(by));
    await serve({}, (app) => app.useGlobalGuards(guard), async (url) => {
      await check(by, async () => {
        const response = await fetch(url);
        return [response.status, Object.fromEntries(response.headers)];
      });
      assert.equal((await (await fetch(url)).json()).status, 429);
    });
  }));
}

// serve runs an application of NestJS, and calls use with its address.
async function serve(module, configure, use) {
  class Pages {
    index() {
      return "served";
    }
  }
  Controller()(Pages);
  Get()(Pages.prototype, "index", Object.getOwnPropertyDescriptor(Pages.prototype, "index"));
  class App {}
  Module({ controllers: [Pages], ...module })(App);
  const app = await NestFactory.create(App, { logger: false });
  configure(app);
  await app.listen(0, "127.0.0.1");
  await use(await app.getUrl());
  await app.close();
}

test("without a server, Fastify and NestJS answer 503", () => withClient(async (client) => {
  const limiter = new Limiter(client, { onError: "deny" });
  const app = Fastify();
  app.addHook("onRequest", rateLimit(limiter, "tiny", limitOf("tiny")));
  app.get("/", async () => "served");
  assert.equal((await app.inject("/")).statusCode, 503);
  await serve({}, (nest) => nest.useGlobalGuards(new RateLimitGuard(limiter, "tiny", limitOf("tiny"))), async (url) => {
    assert.equal((await fetch(url)).status, 503);
  });
}, 1));

test("@fastify/rate-limit", () => withClient(async (client) => {
  const app = Fastify();
  await app.register(fastifyRateLimit, { max: 2, timeWindow: hour, store: storeOf(client, { timeout: 60_000 }) });
  app.get("/", async () => "served");
  app.get("/own", { config: { rateLimit: { max: 1, timeWindow: hour } } }, async () => "served");
  const peek = app.createRateLimit();
  app.get("/peek", { config: { rateLimit: false } }, (request) => peek(request, { increment: false }));
  const statuses = [];
  for (const path of ["/", "/own", "/own", "/", "/"]) statuses.push((await app.inject(path)).statusCode);
  assert.deepEqual(statuses, [200, 200, 429, 200, 429]);
  const { headers } = await app.inject("/");
  assert.equal(headers["x-ratelimit-limit"], "2");
  assert.equal(headers["x-ratelimit-remaining"], "0");
  assert.ok(Number(headers["retry-after"]) > 3500 && Number(headers["retry-after"]) <= 3600);
  const state = (await app.inject("/peek")).json();
  assert.ok(state.isExceeded && state.remaining === 0 && state.ttl > 3_500_000, JSON.stringify(state));
  assert.equal(state.ttlInSeconds, Math.ceil(state.ttl / 1000));
  const refused = Fastify();
  await assert.rejects(async () => refused.register(fastifyRateLimit, { continueExceeding: true, store: storeOf(client) }), /continueExceeding/);
}));

test("@fastify/rate-limit without a server", () => withClient(async (client) => {
  for (const [skipOnError, status] of [[true, 200], [false, 500]]) {
    const app = Fastify();
    await app.register(fastifyRateLimit, { max: 2, skipOnError, store: storeOf(client) });
    app.get("/", async () => "served");
    assert.equal((await app.inject("/")).statusCode, status);
  }
}, 1));

test("@nestjs/throttler", () => withClient(async (client) => {
  const storage = new CellserverStorage(client, { timeout: 60_000 });
  const module = {
    imports: [ThrottlerModule.forRoot({ throttlers: [{ ttl: hour, limit: 2 }], storage })],
    providers: [{ provide: APP_GUARD, useClass: ThrottlerGuard }],
  };
  await serve(module, () => {}, async (url) => {
    for (const [status, remaining] of [[200, "1"], [200, "0"], [429, null], [429, null]]) {
      const response = await fetch(url);
      assert.equal(response.status, status);
      assert.equal(response.headers.get("X-RateLimit-Remaining"), remaining);
      const after = Number(response.headers.get("Retry-After"));
      assert.ok(status === 200 ? after === 0 : after > 3500 && after <= 3600, String(after));
    }
  });
  assert.deepEqual(await storage.increment("k", 1000, 0, 1000, "none"), {
    totalHits: 1, timeToExpire: 0, isBlocked: true, timeToBlockExpire: 1,
  });
  await assert.rejects(storage.increment("k", 1000, 1, 2000, "long"), /blockDuration of throttler long/);
}));

// Each program of docs/migrate.md for Node.js: it answers on its port, or prints what it says, and the server has a key.
const programs = readFileSync(process.env.MIGRATE, "utf8").matchAll(/```js (\S+)\n([^]*?)```/g);
for (const [, name, text] of programs) {
  test(`docs/migrate.md, ${name}`, async () => {
    await server.ask("FLUSHALL");
    const port = await freePort();
    writeFileSync(name, text.replaceAll("6379", server.port).replaceAll("3000", port));
    const program = spawn(process.execPath, [name], { stdio: ["ignore", "pipe", "inherit"] });
    const ended = new Promise((resolve) => program.once("exit", resolve));
    const printed = program.stdout.toArray();
    if (text.includes("3000")) {
      const url = `http://127.0.0.1:${port}/`;
      let response;
      while (!response) {
        response = await fetch(url).catch(() => assert.equal(program.exitCode, null));
      }
      assert.equal(await response.text(), "served");
      program.kill("SIGKILL");
    } else {
      const expected = /console\.log\(.*\); \/\/ (.*)/.exec(text)[1];
      assert.equal(Buffer.concat(await printed).toString(), `${expected}\n`);
    }
    await ended;
    rmSync(name);
    assert.equal(await server.ask("DBSIZE"), 1);
  });
}
