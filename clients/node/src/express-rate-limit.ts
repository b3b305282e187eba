/** A store for express-rate-limit: rateLimit({ store: new CellserverStore(client), ... }). */

import type { ClientRateLimitInfo, Options, Store } from "express-rate-limit";
import { fixed, membersOf, newCall, plainCall } from "./calls.js";
import type { Client } from "./client.js";
import { Limiter } from "./limiter.js";

// A limit that no window reaches: express-rate-limit compares the count with its own limit. node-redis does not round it.
const MANY = 1_000_000_000_000;

export class CellserverStore implements Store {
  prefix: string;
  #limiter: Limiter;
  #window = 60_000;

  constructor(client: Client, options: { prefix?: string; timeout?: number; retries?: number } = {}) {
    this.prefix = options.prefix ?? "rl:";
    this.#limiter = new Limiter(client, { ...options, onError: "deny" });
  }

  init(options: Options): void {
    this.#window = options.windowMs;
  }

  async #count(key: string, quantity: number): Promise<ClientRateLimitInfo> {
    const reply = await this.#limiter.ask(newCall(fixed(this.prefix + key, MANY, this.#window), quantity));
    const [, limit = 0, remaining = 0, , reset = 0] = reply as number[];
    return { totalHits: limit - remaining, resetTime: new Date(Date.now() + reset) };
  }

  increment(key: string): Promise<ClientRateLimitInfo> {
    return this.#count(key, 1);
  }

  async decrement(key: string): Promise<void> {
    await this.#count(key, -1);
  }

  async get(key: string): Promise<ClientRateLimitInfo | undefined> {
    const found = membersOf(await this.#limiter.ask(plainCall("CL.INSPECT", this.prefix + key)));
    const used = membersOf(found["state"])["used"];
    if (used === undefined) return undefined;
    return { totalHits: Number(used), resetTime: new Date(Date.now() + Number(found["expires_ms"])) };
  }

  async resetKey(key: string): Promise<void> {
    await this.#limiter.ask(plainCall("DEL", this.prefix + key));
  }
}
