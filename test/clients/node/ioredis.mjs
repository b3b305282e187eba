// Plays the scenario with ioredis: node ioredis.mjs name-of-the-package
import assert from "node:assert/strict";
import { client, installed, ok, port, protocol, restart } from "./scenario.mjs";

const { Redis, ReplyError } = await import(installed);
const open = (db) => new Redis({ port, db, ...(protocol && { protocol }) }); // ioredis writes connection errors to stderr

client("ioredis");
const redis = open(0);
const throttle = () => redis.call("CL.THROTTLE", "user123", 15, 30, 60, 1);
assert.deepEqual(await throttle(), [0, 16, 15, -1, 2]);
ok("throttle call");

assert.equal(await redis.incr("n"), 1);
assert.equal(await redis.incr("n"), 2);
assert.equal(await redis.expire("n", 100), 1);
const ttl = await redis.ttl("n");
assert.ok(ttl > 50 && ttl <= 100);
ok("counters");

const pipe = redis.pipeline();
for (let i = 0; i < 10; i++) pipe.call("CL.THROTTLE", "pipe", 99, 1, 1000, 1);
for (const [i, [failure, reply]] of (await pipe.exec()).entries()) {
  assert.ifError(failure);
  assert.deepEqual(reply.slice(0, 3), [0, 100, 99 - i]);
}
ok("pipeline");

const replies = await redis.multi().incr("n").call("CL.THROTTLE", "tx", 15, 30, 60, 1).exec();
assert.deepEqual(replies, [[null, 3], [null, [0, 16, 15, -1, 2]]]);
ok("transaction");

const refused = (message) => (e) => e instanceof ReplyError && e.message.startsWith(message);
await assert.rejects(redis.incr("pipe"), refused("WRONGTYPE "));
await assert.rejects(redis.call("CL.THROTTLE", "k", 15, 30, "x"), refused("ERR value is not an integer or out of range: period (units are ms, s, m, h and d)"));
ok("errors");

const two = open(2);
assert.equal(await two.exists("n"), 0);
assert.equal(await two.incr("n"), 1);
assert.equal(await redis.get("n"), "3");
await two.quit();
ok("database");

await restart(async () => assert.deepEqual(await throttle(), [0, 16, 15, -1, 2]));
await redis.quit();
