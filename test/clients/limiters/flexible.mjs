// Tests rate-limiter-flexible with its default settings: node flexible.mjs ioredis|node-redis port
// Tests RateLimiterRedisNonAtomic, and RateLimiterRedis where it needs no Lua. The results are printed, so that run.sh can
// compare those of cellserver with those of redis-server.
import assert from "node:assert/strict";
import { setTimeout } from "node:timers/promises";
import Redis from "ioredis";
import { RateLimiterRedis, RateLimiterRedisNonAtomic } from "rate-limiter-flexible";
import { createClient } from "redis";

const [, , which, port] = process.argv;
const useRedisPackage = which === "node-redis";
const storeClient = useRedisPackage ? await createClient({ socket: { port } }).connect() : new Redis({ port });
const limiter = (more) => new RateLimiterRedisNonAtomic({ storeClient, useRedisPackage, points: 5, duration: 1000, ...more });

// until rounds a time up to a multiple of 100 s, because time passes while the test runs.
const until = (ms) => (ms > 0 ? Math.ceil(ms / 100_000) * 100 : ms);
const seen = (word, res) => res && `${word}: ${res.consumedPoints} consumed, ${res.remainingPoints} left, until ${until(res.msBeforeNext)}`;
const consume = (of, ...what) =>
  of.consume(...what).then(
    (res) => seen("allowed", res),
    (res) => (res instanceof Error ? assert.fail(res) : seen("refused", res)),
  );
const expect = (what, got, want) => {
  assert.deepEqual(got, want, what);
  console.log(`${what} - ${got}`);
};

async function limit() {
  const page = limiter();
  for (let i = 1; i <= 5; i++) {
    expect("alice", await consume(page, "alice"), `allowed: ${i} consumed, ${5 - i} left, until 1000`);
  }
  expect("alice", await consume(page, "alice"), "refused: 6 consumed, 0 left, until 1000");
  expect("bob has a separate limit", await consume(page, "bob", 4), "allowed: 4 consumed, 1 left, until 1000");
  expect("bob", await consume(page, "bob", 2), "refused: 6 consumed, 0 left, until 1000");
  expect("the state of alice", seen("read", await page.get("alice")), "read: 6 consumed, 0 left, until 1000");
  expect("the state of a new user", await page.get("unknown"), null);
  expect("a longer window", await consume(page, "carol", 1, { customDuration: 3000 }), "allowed: 1 consumed, 4 left, until 3000");
  expect("the window keeps its length", await consume(page, "carol"), "allowed: 2 consumed, 3 left, until 3000");
}

async function block() {
  const login = limiter({ keyPrefix: "login", points: 2, blockDuration: 5000 });
  expect("login", await consume(login, "alice"), "allowed: 1 consumed, 1 left, until 1000");
  expect("login", await consume(login, "alice"), "allowed: 2 consumed, 0 left, until 1000");
  expect("one call too many blocks the user", await consume(login, "alice"), "refused: 3 consumed, 0 left, until 5000");
  expect("still blocked", await consume(login, "alice"), "refused: 4 consumed, 0 left, until 5000");
  expect("the time to live that the server reports", until(await (useRedisPackage ? storeClient.pTTL("login:alice") : storeClient.pttl("login:alice"))), 5000);
  await login.block("bob", 7000);
  expect("blocked at once", await consume(login, "bob"), "refused: 4 consumed, 0 left, until 7000");
}

async function correct() {
  const page = limiter({ keyPrefix: "corrected" });
  expect("penalty", seen("now", await page.penalty("alice", 4)), "now: 4 consumed, 1 left, until 1000");
  expect("alice", await consume(page, "alice", 2), "refused: 6 consumed, 0 left, until 1000");
  expect("reward", seen("now", await page.reward("alice", 3)), "now: 3 consumed, 2 left, until 1000");
  expect("alice", await consume(page, "alice", 2), "allowed: 5 consumed, 0 left, until 1000");
  await page.set("alice", 1, 300);
  expect("set", await consume(page, "alice"), "allowed: 2 consumed, 3 left, until 300");
  expect("deleted", await page.delete("alice"), true);
  expect("deleted again", await page.delete("alice"), false);
  expect("alice", await consume(page, "alice"), "allowed: 1 consumed, 4 left, until 1000");
}

// Without a duration, RateLimiterRedis sends MULTI, INCRBY, PTTL, so simultaneous calls are all counted.
async function forEver() {
  const options = { storeClient, useRedisPackage, points: 5, duration: 0, keyPrefix: "ever" };
  expect("for ever", await consume(limiter(options), "bob", 2), "allowed: 2 consumed, 3 left, until -1");
  const answers = await Promise.all(Array.from({ length: 20 }, () => consume(new RateLimiterRedis(options), "alice")));
  const want = Array.from({ length: 20 }, (_, i) => `${i < 5 ? "allowed" : "refused"}: ${i + 1} consumed, ${Math.max(4 - i, 0)} left, until -1`);
  expect("twenty at once", answers.sort(byConsumed).join("; "), want.join("; "));
}
const byConsumed = (a, b) => a.split(" ")[1] - b.split(" ")[1];

async function expire() {
  const short = limiter({ points: 1, duration: 1, keyPrefix: "short" });
  await short.consume("alice");
  for (const late = Date.now() + 20_000; (await short.get("alice")) !== null; await setTimeout(20)) {
    assert.ok(Date.now() < late, "the key does not expire");
  }
  await short.consume("alice"); // throws if it is refused
  console.log("a second later - allowed");
}

for (const scenario of [limit, block, correct, forEver, expire]) await scenario();
await (useRedisPackage ? storeClient.close() : storeClient.quit());
