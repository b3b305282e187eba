// A real server for tests, the program that the environment variable CELLSERVER names, and clients of it.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import net from "node:net";
import { createInterface } from "node:readline";
import Redis from "ioredis";
import Redis5 from "ioredis5";
import { createClient } from "redis";
import { createClient as createClient5 } from "redis5";

const folder = process.env.CONTRACT;
export const contract = JSON.parse(readFileSync(`${folder}/contract.json`, "utf8"));

// freePort returns a port that nobody listens on, below those that systems give to connections.
export const freePort = () =>
  new Promise((resolve) => {
    const port = 16384 + Math.floor(Math.random() * 16384);
    const s = net.createServer().listen(port, "127.0.0.1", () => s.close(() => resolve(port)));
    s.on("error", () => resolve(freePort()));
  });

export async function start() {
  const port = await freePort();
  const child = spawn(process.env.CELLSERVER, ["--port", port, "--policies", `${folder}/policies.yaml`]);
  process.on("exit", () => child.kill("SIGKILL"));
  await new Promise((resolve) => {
    createInterface(child.stderr).on("line", (line) => line.includes("Ready to accept connections") && resolve());
  });
  return { port, child, ask: (...calls) => ask(port, calls), listen: (prefix = "CL.") => listen(port, prefix) };
}

// ask makes calls, each a string of words, and returns the last reply.
async function ask(port, calls) {
  const client = new Redis({ port });
  let reply;
  for (const c of calls) reply = await client.call(...c.split(" "));
  client.disconnect();
  return reply;
}

// listen returns a function that returns the words of the server's next call whose name begins with a prefix.
async function listen(port, prefix) {
  const socket = net.connect(port, "127.0.0.1");
  const lines = createInterface(socket)[Symbol.asyncIterator]();
  socket.write("MONITOR\r\n");
  await lines.next();
  const next = async () => {
    for (;;) {
      const { value } = await lines.next();
      const words = [...value.slice(value.indexOf("] ") + 2).matchAll(/"(?:[^"\\]|\\.)*"/g)].map(([w]) => JSON.parse(w));
      if (words[0].startsWith(prefix)) return words;
    }
  };
  next.end = () => socket.destroy();
  return next;
}

const quiet = (client) => client.on("error", () => {});
const ofNodeRedis = (create, more) => async (port) => {
  const client = quiet(create({ socket: { host: "127.0.0.1", port }, ...more }));
  await Promise.race([client.connect().catch(() => {}), new Promise((resolve) => client.once("error", resolve))]);
  return { client, end: () => client.destroy() };
};
const ofIORedis = (Client) => async (port) => {
  const client = quiet(new Client({ port, host: "127.0.0.1", enableReadyCheck: false }));
  return { client, end: () => client.disconnect() };
};

// clients are functions that connect to a port.
export const clients = {
  "node-redis 5": ofNodeRedis(createClient5),
  "node-redis": ofNodeRedis(createClient, { RESP: 2 }),
  "node-redis with RESP3": ofNodeRedis(createClient, { RESP: 3 }),
  "ioredis 5": ofIORedis(Redis5),
  ioredis: ofIORedis(Redis),
};

// peer starts a server that passes each call to the function answer.
export async function peer(answer) {
  const sockets = new Set();
  const server = net.createServer((socket) => {
    let text = "";
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("data", (bytes) => {
      text += bytes;
      for (;;) {
        const count = /^\*(\d+)\r\n/.exec(text);
        const call = count && new RegExp(`^\\*\\d+\\r\\n(?:\\$\\d+\\r\\n[^\\r]*\\r\\n){${count[1]}}`).exec(text);
        if (!call) return;
        text = text.slice(call[0].length);
        answer(call[0], socket);
      }
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const cut = () => sockets.forEach((socket) => socket.destroy());
  return { port: server.address().port, cut, end: () => server.close() };
}

export const isDecision = (call) => /\r\nCL\./.test(call);
export const unknown = "-ERR unknown command 'HELLO'\r\n";

// refuser answers a decision with the error reply, and any other call, such as HELLO, with another error.
export const refuser = (reply) => peer((call, socket) => socket.write(isDecision(call) ? `-${reply}\r\n` : unknown));
