// What the Node.js programs share: how they report to test/clients/run.sh.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline/promises";
import { setTimeout } from "node:timers/promises";

export const [, , installed] = process.argv; // the installed name of the client's package, such as ioredis5
export const port = Number(process.env.PORT);
export const protocol = process.env.PROTOCOL && Number(process.env.PROTOCOL); // unset: the client's default
const dir = process.env.TLS;
const file = (name) => readFileSync(`${dir}/${name}`);
export const tls = dir && { tls: true, host: "127.0.0.1", ca: file("ca.crt"), cert: file("client.crt"), key: file("client.key") };

export function client(name) {
  console.log("client", name, JSON.parse(readFileSync(`node_modules/${installed}/package.json`)).version);
}
export function ok(...feature) {
  console.log("ok", ...feature);
}

// restart asks run.sh to restart the server, and then calls until a call succeeds.
export async function restart(call) {
  console.log("restart");
  const lines = createInterface(process.stdin);
  await lines.question("");
  lines.close();
  let failed = 0;
  for (; !(await call().then(() => true, (e) => (e.code === "ERR_ASSERTION" ? Promise.reject(e) : false))); failed++) {
    if (failed > 100) throw new Error("the client does not connect again");
    await setTimeout(50);
  }
  ok("restart", ...(failed ? ["after an error"] : []));
}
