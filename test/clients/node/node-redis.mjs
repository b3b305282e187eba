// Plays the scenario with node-redis: node node-redis.mjs name-of-the-package
import assert from "node:assert/strict";
import { client, installed, ok, port, protocol, restart, tls } from "./scenario.mjs";

const { createClient, ErrorReply } = await import(installed);
const logError = (e) => console.error(e); // run.sh allows none before the restart
const open = (database) =>
  createClient({ socket: { port, ...tls }, database, ...(protocol && { RESP: protocol }) }).on("error", logError).connect();
const limit = (key, ...limit) => ["CL.THROTTLE", key, ...limit];

client("node-redis");
const redis = await open(0);
const throttle = () => redis.sendCommand(limit("user123", "15", "30", "60", "1"));
assert.deepEqual(await throttle(), [0, 16, 15, -1, 2]);
ok("throttle sendCommand");

assert.equal(await redis.incr("n"), 1);
assert.equal(await redis.incr("n"), 2);
assert.equal(await redis.expire("n", 100), 1);
const ttl = await redis.ttl("n");
assert.ok(ttl > 50 && ttl <= 100);
ok("counters");

const pipe = Array.from({ length: 10 }, () => redis.sendCommand(limit("pipe", "99", "1", "1000", "1")));
for (const [i, reply] of (await Promise.all(pipe)).entries()) {
  assert.deepEqual(reply.slice(0, 3), [0, 100, 99 - i]);
}
ok("pipeline");

const replies = await redis.multi().incr("n").addCommand(limit("tx", "15", "30", "60", "1")).exec();
assert.deepEqual(replies, [3, [0, 16, 15, -1, 2]]);
ok("transaction");

const refused = (message) => (e) => e instanceof ErrorReply && e.message.startsWith(message);
await assert.rejects(redis.incr("pipe"), refused("WRONGTYPE "));
await assert.rejects(redis.sendCommand(limit("k", "15", "30", "x")), refused("ERR value is not an integer or out of range: period (units are ms, s, m, h and d)"));
ok("errors");

const two = await open(2);
assert.equal(await two.exists("n"), 0);
assert.equal(await two.incr("n"), 1);
assert.equal(await redis.get("n"), "3");
await two.close();
ok("database");

await restart(async () => assert.deepEqual(await throttle(), [0, 16, 15, -1, 2]));
await redis.close();
