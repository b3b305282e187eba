// rate-limiter-flexible, as it comes: node flexible.mjs ioredis|node-redis port
// RateLimiterRedisNonAtomic, and RateLimiterRedis where it needs no Lua. What is seen is printed, for comparison.
import assert from "node:assert/strict";
import { setTimeout } from "node:timers/promises";
import Redis from "ioredis";
import { RateLimiterRedis, RateLimiterRedisNonAtomic } from "rate-limiter-flexible";
import { createClient } from "redis";

const [, , which, port] = process.argv;
const useRedisPackage = which === "node-redis";
const storeClient = useRedisPackage ? await createClient({ socket: { port } }).connect() : new Redis({ port });
const limiter = (more) => new RateLimiterRedisNonAtomic({ storeClient, useRedisPackage, points: 5, duration: 1000, ...more });

// until is in hundreds of seconds, rounded up: they run down meanwhile.
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
  expect("bob has a limit of his own", await consume(page, "bob", 4), "allowed: 4 consumed, 1 left, until 1000");
  expect("bob", await consume(page, "bob", 2), "refused: 6 consumed, 0 left, until 1000");
  expect("alice is asked about", seen("read", await page.get("alice")), "read: 6 consumed, 0 left, until 1000");
  expect("nobody is asked about", await page.get("nobody"), null);
  expect("a longer window", await consume(page, "carol", 1, { customDuration: 3000 }), "allowed: 1 consumed, 4 left, until 3000");
  expect("it stays", await consume(page, "carol"), "allowed: 2 consumed, 3 left, until 3000");
}

async function block() {
  const login = limiter({ keyPrefix: "login", points: 2, blockDuration: 5000 });
  expect("login", await consume(login, "alice"), "allowed: 1 consumed, 1 left, until 1000");
  expect("login", await consume(login, "alice"), "allowed: 2 consumed, 0 left, until 1000");
  expect("too many block", await consume(login, "alice"), "refused: 3 consumed, 0 left, until 5000");
  expect("still", await consume(login, "alice"), "refused: 4 consumed, 0 left, until 5000");
  expect("as the server says", until(await (useRedisPackage ? storeClient.pTTL("login:alice") : storeClient.pttl("login:alice"))), 5000);
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

// Without a duration RateLimiterRedis is MULTI, INCRBY, PTTL: whoever comes at once is counted.
async function forEver() {
  const of = { storeClient, useRedisPackage, points: 5, duration: 0, keyPrefix: "ever" };
  expect("for ever", await consume(limiter(of), "bob", 2), "allowed: 2 consumed, 3 left, until -1");
  const answers = await Promise.all(Array.from({ length: 20 }, () => consume(new RateLimiterRedis(of), "alice")));
  const want = Array.from({ length: 20 }, (_, i) => `${i < 5 ? "allowed" : "refused"}: ${i + 1} consumed, ${Math.max(4 - i, 0)} left, until -1`);
  expect("twenty at once", answers.sort(byConsumed).join("; "), want.join("; "));
}
const byConsumed = (a, b) => a.split(" ")[1] - b.split(" ")[1];

async function expire() {
  const short = limiter({ points: 1, duration: 1, keyPrefix: "short" });
  await short.consume("alice");
  for (const late = Date.now() + 20_000; (await short.get("alice")) !== null; await setTimeout(20)) {
    assert.ok(Date.now() < late, "it does not expire");
  }
  await short.consume("alice"); // rejects if it is refused
  console.log("a second later - allowed");
}

for (const story of [limit, block, correct, forEver, expire]) await story();
await (useRedisPackage ? storeClient.close() : storeClient.quit());
