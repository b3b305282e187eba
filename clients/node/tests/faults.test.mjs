// Whatever happens to connections and servers, an answered call has counted once, and a call without an answer at
// most once. FAULTS is the number of calls. The program in FAULTS_PROXY breaks connections and servers.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { test } from "node:test";
import Redis from "ioredis";
import { Limiter, fixed, noAnswer } from "cellserver";
import { clients } from "./server.mjs";

const calls = Number(process.env.FAULTS ?? 2000);

// On a busy machine, a store may need longer than 100 ms, and a client may repeat a call after more than 10 s.
const env = { ...process.env, CELLSERVER_STORE_TIMEOUT: "30000", CELLSERVER_ID_TTL: "3600" };

// check returns how many calls were answered and not counted, and how many were counted twice.
async function check(port, answered) {
  const redis = new Redis({ port });
  let [lost, twice] = [0, 0];
  for (let first = 0; first < calls; first += 1000) {
    const pipeline = redis.pipeline();
    for (let i = first; i < Math.min(first + 1000, calls); i++) pipeline.call("CL.FIXED", i, 10, 3600, 0);
    const replies = await pipeline.exec();
    if (replies.some(([error]) => error && noAnswer(error))) {
      first -= 1000; // the server that was started last has not reached its store yet
      continue;
    }
    replies.forEach(([error, reply], i) => {
      if (error) throw error;
      if (reply[2] < 9) twice++;
      else if (reply[2] === 10 && answered[first + i]) lost++;
    });
  }
  redis.disconnect();
  const without = answered.filter((is) => !is).length;
  console.log(`${calls} calls, ${without} without an answer, ${lost} lost, ${twice} counted twice`);
  assert.ok(without < calls);
  return { lost, twice };
}

async function play(name, plant = () => {}) {
  const stdio = ["pipe", "pipe", "inherit"];
  const program = spawn(process.env.FAULTS_PROXY, [process.env.CELLSERVER], { env, stdio });
  const lines = createInterface(program.stdout)[Symbol.asyncIterator]();
  const port = Number((await lines.next()).value);
  const { client, end } = await clients[name](port);
  const limiter = new Limiter(client, { timeout: 5000, onError: "deny" });
  plant(limiter);
  const answered = new Array(calls).fill(false);
  let next = 0;
  const caller = async () => {
    while (next < calls) {
      const i = next++;
      const { allowed, cause } = await limiter.do(fixed(String(i), 10, 3_600_000));
      assert.equal(allowed, cause === undefined);
      answered[i] = allowed;
      if (cause) await sleep(20);
    }
  };
  await Promise.all(Array.from({ length: 50 }, caller));
  program.stdin.write("\n");
  console.log(name, (await lines.next()).value);
  // Without faults, calls are answered again.
  while ((await limiter.do(fixed("after", 10, 3_600_000))).cause) await sleep(20);
  end();
  const counts = await check(port, answered);
  program.stdin.end();
  await new Promise((resolve) => program.once("exit", resolve));
  return counts;
}

for (const name of ["node-redis", "ioredis"]) {
  test(`faults, ${name}`, async () => assert.deepEqual(await play(name), { lost: 0, twice: 0 }));
}

test("a planted bug: calls that are repeated have no ID", async () => {
  const { twice } = await play("ioredis", ({ sender }) => {
    const { send } = sender;
    sender.send = (words) => send(words.slice(0, words.indexOf("ID")));
  });
  assert.ok(twice > 0);
});
