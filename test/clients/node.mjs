// node-redis and ioredis, as they come: node node.mjs port
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createClient } from "redis";
import Redis from "ioredis";

const port = Number(process.argv[2]);
const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`)).version;
const throttle = ["CL.THROTTLE", "user123", "15", "30", "60", "1"];
const slow = (key) => ["CL.THROTTLE", key, "99", "1", "1000", "1"];
const firstThree = (replies) => replies.map((reply) => reply.slice(0, 3));
const countdown = Array.from({ length: 100 }, (_, i) => [0, 100, 99 - i]);

// check tells one story with any client: call sends words, batch sends many calls at once.
async function check(name, packageName, { call, batch, inDatabase2, reconnect }) {
  await call(["FLUSHALL"]);
  assert.equal(await call(["PING"]), "PONG");
  assert.deepEqual(await call(throttle), [0, 16, 15, -1, 2]);
  assert.deepEqual(firstThree(await batch(countdown.map(() => slow("pipe")))), countdown);
  await assert.rejects(call(["CL.THROTTLE", "k", "15", "30", "x"]), {
    message: "ERR value is not an integer or out of range",
  });
  await assert.rejects(call(["NOSUCH", "a"]), /^(Reply|Simple)?Error.*unknown command 'NOSUCH', with args beginning with: 'a'/);
  await inDatabase2(async (callThere) => {
    assert.equal(await callThere(["EXISTS", "pipe"]), 0);
    assert.deepEqual(firstThree([await callThere(slow("pipe"))]), [[0, 100, 99]]);
    await callThere(["FLUSHDB"]);
  });
  assert.equal(await call(["EXISTS", "pipe"]), 1);
  const before = await call(["CLIENT", "ID"]);
  await reconnect(before);
  assert.deepEqual(firstThree([await call(slow("pipe"))]), [[1, 100, 0]]);
  assert.notEqual(await call(["CLIENT", "ID"]), before);
  console.log("ok", name, version(packageName));
}

async function nodeRedis(name, options) {
  const open = (more) => createClient({ socket: { port }, ...options, ...more }).on("error", () => {}).connect();
  const client = await open();
  await check(name, "redis", {
    call: (words) => client.sendCommand(words),
    batch: (calls) => Promise.all(calls.map((words) => client.sendCommand(words))),
    inDatabase2: async (story) => {
      const two = await open({ database: 2 });
      await story((words) => two.sendCommand(words));
      await two.close();
    },
    reconnect: async () => {
      client.destroy();
      await client.connect();
    },
  });
  await client.close();
}

async function ioredis(name, options) {
  const open = (more) => new Redis({ port, ...options, ...more });
  const client = open();
  await check(name, "ioredis", {
    call: ([first, ...rest]) => client.call(first, ...rest),
    batch: async (calls) => {
      const replies = await client.pipeline(calls.map(([first, ...rest]) => ["call", first, ...rest])).exec();
      return replies.map(([failure, reply]) => assert.ifError(failure) ?? reply);
    },
    inDatabase2: async (story) => {
      const two = open({ db: 2 });
      await story(([first, ...rest]) => two.call(first, ...rest));
      await two.quit();
    },
    reconnect: async () => {
      const ready = new Promise((resolve) => client.once("ready", resolve));
      client.disconnect(true);
      await ready;
    },
  });
  await client.quit();
}

await nodeRedis("node-redis", {});
await nodeRedis("node-redis-resp2", { RESP: 2 });
await ioredis("ioredis", {});
await ioredis("ioredis-resp2", { protocol: 2 });
