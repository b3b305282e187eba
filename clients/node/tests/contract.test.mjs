// contract.json, which all clients obey, with each Redis client.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Limiter, fixed, policy, quota, sliding, slidingLog, throttle } from "cellserver";
import { clients, contract, refuser, start } from "./server.mjs";

const limitOf = ({ method, key, limit, period, unit, ...c }) => {
  if (method === "throttle") return throttle(key, { burst: c.burst, count: c.count, period: period * 1000 });
  if (method === "quota") return quota(key, limit, unit);
  if (method === "take") return policy(c.policy, c.subject);
  return { fixed, sliding, slidinglog: slidingLog }[method](key, limit, period * 1000);
};

// compare compares a decision of the real server, whose times may be up to a minute shorter than in want.
function compare(c, { cause, ...d }, want) {
  assert.equal(cause, undefined);
  const got = { ...d, retryAfter: d.retryAfter === Infinity ? -1 : d.retryAfter };
  for (const name of ["retryAfter", "resetAfter"]) {
    const near = got[name] <= want[name] + (c.slack ?? 0) && got[name] > want[name] - 60_000;
    if (want[name] > 0 && (c.anytime || near)) got[name] = want[name];
  }
  assert.deepEqual(got, { corrected: 0, ...want });
}

const compareWords = (got, want) => assert.deepEqual(got, want.split(" ").map((w, i) => (w === "*" ? got[i] : w)));

async function play(c, limiter, next, words) {
  const { call } = c;
  const options = { ...call.options, ...(call.options?.wait && { wait: call.options.wait * 1000 }) };
  if (call.method === "all") {
    const [d, each] = await limiter.all(call.parts.map((p) => ({ limit: limitOf(p), quantity: p.quantity, force: p.force })));
    compare(c, d, c.decision);
    each.forEach((part, i) => compare(c, part, c.decisions[i]));
  } else if (call.method === "hold") {
    const [hold, d] = await limiter.hold(call.policy, call.subject, call.quantity, call.ttl * 1000);
    compare(c, d, c.decision);
    compareWords(await next(), words);
    compare(c, await hold.settle(c.settle), c.settled);
    words = c.settleWords;
  } else if (call.method === "acquire") {
    const [lease, d] = await limiter.acquire(call.key, call.limit, call.ttl * 1000);
    compare(c, d, c.decision);
    if (lease) {
      compareWords(await next(), words);
      await lease.release();
      words = c.releaseWords;
    }
  } else {
    compare(c, await limiter.do(limitOf(call), call.quantity, options), c.decision);
  }
  compareWords(await next(), words);
}

let server;
before(async () => (server = await start()));
after(() => server.child.kill("SIGKILL"));

for (const [name, connect] of Object.entries(clients)) {
  describe(name, () => {
    let at;
    before(async () => (at = await connect(server.port)));
    after(() => at.end());
    for (const retries of [0, 2]) {
      for (const c of contract.cases) {
        test(`${c.name}, retries ${retries}`, async () => {
          const limiter = new Limiter(at.client, { timeout: 60_000, retries });
          await server.ask("FLUSHALL", ...(c.before ?? []));
          const next = await server.listen();
          const hasID = (retries > 0 || name.startsWith("ioredis")) && c.id !== false; // ioredis repeats calls by itself
          await play(c, limiter, next, c.words + (hasID ? " ID *" : ""));
          next.end();
        });
      }
    }
    if (name.endsWith("RESP3")) return;
    for (const e of contract.errors) {
      test(`${e.reply} is a ${e.means}`, async () => {
        const peer = await refuser(e.reply);
        const at = await connect(peer.port);
        const call = new Limiter(at.client, { timeout: 60_000, retries: 0 }).throttle("k", { burst: 1, count: 1, period: 60_000 });
        if (e.means === "mistake") await assert.rejects(call, { message: e.reply });
        else assert.ok((await call).allowed && (await call).cause);
        at.end();
        peer.end();
      });
    }
  });
}
