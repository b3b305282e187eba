// Replies, and what happens while the server does not answer.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { after, before, test } from "node:test";
import { Limiter, fixed, policy, quota, sliding, slidingLog, throttle } from "cellserver";
import { clients, contract, isDecision, peer, start, unknown } from "./server.mjs";

const dist = path.dirname(createRequire(import.meta.url).resolve("cellserver"));
const { decisionOf, newAll, newCall } = await import(path.join(dist, "calls.js"));
const { senderOf } = await import(path.join(dist, "client.js"));
const { MOST, Refusals } = await import(path.join(dist, "refusals.js"));
const { fieldsOf } = await import(path.join(dist, "http.js"));
const { Breaker, Buckets, FAILURES, MOST_BUCKETS } = await import(path.join(dist, "outage.js"));

test("replies", () => {
  const make = {
    throttle: (c) => throttle(c.key, { burst: c.burst, count: c.count, period: c.period * 1000 }),
    fixed: (c) => fixed(c.key, c.limit, c.period * 1000),
    sliding: (c) => sliding(c.key, c.limit, c.period * 1000),
    slidinglog: (c) => slidingLog(c.key, c.limit, c.period * 1000),
    quota: (c) => quota(c.key, c.limit, c.unit),
  };
  for (const c of contract.cases) {
    if (c.call.method === "all") continue;
    const d = decisionOf(c.reply);
    assert.deepEqual({ ...d, retryAfter: d.retryAfter === Infinity ? -1 : d.retryAfter }, { corrected: 0, ...c.decision }, c.name);
    if (c.fields) assert.deepEqual(Object.fromEntries(fieldsOf(c.call.key, make[c.call.method](c.call), d)), c.fields, c.name);
  }
});

test("after five calls without a reply, one in 100 ms is sent", () => {
  const breaker = new Breaker();
  let sent = 0;
  for (let ms = 0; ms < 1000; ms++) {
    if (!breaker.admit(ms)) continue;
    sent++;
    breaker.count(true);
  }
  assert.equal(sent, FAILURES + 10);
  breaker.count(false);
  assert.ok(breaker.admit(1000) && breaker.admit(1000));
});

test("a share of a limit", () => {
  const take = (buckets, limit, now, quantity = 1) => buckets.take(newCall(limit, quantity), now);
  const k = throttle("k", { burst: 8, count: 64, period: 64_000 });
  const half = new Buckets(0.5);
  let admitted = 0;
  for (let ms = 0; ms < 10_000; ms += 10) admitted += take(half, k, ms).allowed ? 1 : 0;
  assert.equal(admitted, 4 + 5 - 1); // half of the burst of 8, and half a token a second; the last token is late
  assert.ok(!take(new Buckets(0.1), k, 0).allowed);
  assert.ok(!take(half, policy("api", "k"), 0).allowed);
  const whole = new Buckets(1);
  const [a, b] = [fixed("a", 10, 3_600_000), fixed("b", 10, 3_600_000)];
  const d = whole.take(newAll([{ limit: a, quantity: 8 }, { limit: b, quantity: 11 }], {}), 0);
  assert.ok(!d.allowed && d.retryAfter === Infinity);
  assert.equal(take(whole, a, 0, 8).remaining, 2);
  for (let n = 0; n < MOST_BUCKETS + 100; n++) take(whole, fixed(String(n), 10, 3_600_000), 0);
  assert.equal(whole.byKey.size, MOST_BUCKETS);
  assert.ok(take(whole, fixed("late", 10, 3_600_000), 3_600_000).allowed);
  assert.equal(whole.byKey.size, 1);
});

test("refusals that are remembered", () => {
  const { limit, steps } = contract.refusals;
  const refusals = new Refusals();
  const k = fixed(limit.key, limit.limit, limit.period * 1000);
  for (const { at, quantity, options, reply, decision } of steps) {
    const call = newCall(k, quantity, options);
    const d = refusals.find(call, at);
    if (decision) {
      assert.deepEqual(d, { corrected: 0, remembered: true, ...decision });
    } else {
      assert.equal(d, undefined);
      refusals.note(call, decisionOf(reply), at);
    }
  }
  const refused = decisionOf([1, 1, 0, 3_600_000, 3_600_000]);
  for (let n = 0; n < MOST + 100; n++) refusals.note(newCall(fixed(String(n), 1, 3_600_000), 1), refused, 3000);
  assert.equal(refusals.byLimit.size, MOST);
  refusals.note(newCall(fixed("late", 1, 3_600_000), 1), refused, 5000);
  assert.equal(refusals.byLimit.size, 1);
});

let server;
before(async () => (server = await start()));
after(() => server.child.kill("SIGKILL"));

const rate = { burst: 20, count: 1, period: 86_400_000 };
for (const [name, connect] of Object.entries(clients)) {
  for (const [onError, want] of [["allow", 20], ["deny", 0], ["local", 5]]) {
    test(`${name}: without a server, ${onError}`, async () => {
      const at = await connect(1);
      const limiter = new Limiter(at.client, { onError, share: 0.25, retries: 0 });
      let allowed = 0;
      for (let i = 0; i < 20; i++) {
        const d = await limiter.throttle("k", rate);
        assert.ok(d.cause);
        allowed += d.allowed ? 1 : 0;
      }
      assert.equal(allowed, want);
      at.end();
    });
  }

  test(`${name}: a stopped server`, async () => {
    const own = await start();
    const at = await connect(own.port);
    const limiter = new Limiter(at.client, { onError: "deny" });
    while ((await limiter.throttle("k", rate)).cause);
    own.child.kill("SIGSTOP");
    let d = await limiter.throttle("k", rate, 0);
    while (!d.cause) d = await limiter.throttle("k", rate, 0);
    assert.ok(!d.allowed);
    own.child.kill("SIGKILL");
    at.end();
  });

  test(`${name}: concurrent calls, each counted once`, async () => {
    await server.ask("FLUSHALL");
    const at = await connect(server.port);
    const limiter = new Limiter(at.client, { timeout: 60_000 });
    const caller = async () => {
      for (let i = 0; i < 40; i++) assert.ok((await limiter.do(fixed("shared", 10_000, 3_600_000))).allowed);
    };
    await Promise.all(Array.from({ length: 50 }, caller));
    assert.equal((await limiter.do(fixed("shared", 10_000, 3_600_000), 0)).remaining, 8000);
    at.end();
  });

  test(`${name}: a refusal is not asked for again`, async () => {
    await server.ask("FLUSHALL");
    const at = await connect(server.port);
    const limiter = new Limiter(at.client, { timeout: 60_000, remember: true });
    const next = await server.listen("CL.");
    const decided = [];
    for (const size of [1, 1, 1, 2]) {
      const { allowed, remembered } = await limiter.do(fixed("k", size, 3_600_000));
      decided.push([allowed, remembered]);
    }
    assert.deepEqual(decided, [[true, undefined], [false, undefined], [false, true], [true, undefined]]);
    for (const size of ["1", "1", "2"]) assert.equal((await next())[2], size);
    next.end();
    at.end();
  });

  test(`${name}: a permit is renewed, and lost`, async () => {
    const at = await connect(server.port);
    const next = await server.listen("CL.RENEW");
    const [lease] = await new Limiter(at.client, { timeout: 60_000 }).acquire("exports", 1, 2000);
    assert.equal((await next())[2], "2");
    assert.ok(!lease.signal.aborted);
    await server.ask("DEL exports");
    while (!lease.signal.aborted) await sleep(10);
    next.end();
    at.end();
  });
}

test("a call that nobody waits for any more is not sent", async () => {
  const at = await clients.ioredis(1);
  const limiter = new Limiter(at.client, { timeout: 10, onError: "deny" });
  let sent = 0;
  limiter.sender.send = async () => sent++;
  let open;
  const ready = new Promise((resolve) => (open = resolve));
  limiter.sender.ready = () => ready;
  assert.match((await limiter.throttle("k", rate)).cause.message, /no reply in time/);
  open();
  await ready;
  await sleep(0);
  assert.equal(sent, 0);
  at.end();
});

// When node-redis connects again, it would send its queued calls together with the handshake.
test("while node-redis connects again, calls wait", async () => {
  const held = [];
  let connections = 0;
  let hold;
  const holds = new Promise((resolve) => (hold = resolve));
  const own = await peer((call, socket) => {
    if (!socket.known) connections++;
    socket.known = true;
    const answer = () => socket.write(isDecision(call) ? "*5\r\n:0\r\n:20\r\n:19\r\n:-1\r\n:0\r\n" : unknown);
    if (connections === 1) return answer();
    held.push({ call, answer });
    hold();
  });
  const at = await clients["node-redis"](own.port);
  const sender = senderOf(at.client);
  assert.equal(sender.ready(), undefined);
  const again = new Promise((resolve) => at.client.once("reconnecting", resolve));
  own.cut();
  await again;
  const decision = new Limiter(at.client, { timeout: 60_000 }).throttle("k", rate);
  await holds;
  const order = [];
  while (!order.includes(true)) {
    for (const { call, answer } of held.splice(0)) {
      assert.ok(!isDecision(call) || !sender.ready());
      order.push(isDecision(call));
      answer();
    }
    await sleep(1);
  }
  assert.ok(order.length > 1 && order.indexOf(true) === order.length - 1, String(order));
  assert.equal((await decision).remaining, 19);
  at.end();
  own.end();
});

test("README.md begins with six lines that run", async () => {
  await server.ask("FLUSHALL");
  const program = /```js\n([^]*?)```/.exec(readFileSync(process.env.README, "utf8"))[1];
  assert.ok(program.trim().split("\n").length <= 6);
  writeFileSync("readme.mjs", program.replaceAll("6379", server.port) + "\nclient.destroy();\n");
  const ran = spawnSync(process.execPath, ["readme.mjs"], { encoding: "utf8" });
  rmSync("readme.mjs");
  assert.equal(ran.stdout, "true 15\n", ran.stderr);
});
