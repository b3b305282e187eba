/** A limiter of rate-limiter-flexible: new RateLimiterCellserver({ storeClient: client, points: 5, duration: 1 }). */

import { type IRateLimiterStoreOptions, RateLimiterRes, type RateLimiterStoreAbstract } from "rate-limiter-flexible";
import { fixed, membersOf, newCall, plainCall } from "./calls.js";
import { Limiter } from "./limiter.js";

// The package declares this class, but does not export it.
const Abstract = require("rate-limiter-flexible/lib/RateLimiterStoreAbstract") as typeof RateLimiterStoreAbstract;

const MANY = 1_000_000_000_000; // calls of a window, which rate-limiter-flexible compares with its own points

type State = [points: number, ms: number];

export class RateLimiterCellserver extends Abstract {
  #limiter: Limiter;

  constructor(options: IRateLimiterStoreOptions & { timeout?: number; retries?: number }) {
    if (!(options.duration !== undefined && options.duration > 0)) throw new Error("cellserver: the duration must be above 0");
    super(options);
    const { timeout, retries } = options;
    this.#limiter = new Limiter(options.storeClient, { ...(timeout && { timeout }), retries: retries ?? 5, onError: "deny" });
  }

  async _upsert(key: string, points: number | string, ms: number, force = false): Promise<State> {
    if (!(ms > 0)) throw new Error("cellserver: the duration must be above 0");
    const call = newCall(fixed(key, MANY, ms), Number(points));
    const reply = force
      ? (await this.#limiter.sender.transaction([["DEL", key], call.words]))[1]
      : await this.#limiter.ask(call);
    const [, limit = 0, remaining = 0, , reset = 0] = reply as number[];
    return [limit - remaining, reset];
  }

  async _get(key: string): Promise<State | null> {
    const found = membersOf(await this.#limiter.ask(plainCall("CL.INSPECT", key)));
    const used = membersOf(found["state"])["used"];
    return used === undefined ? null : [Number(used), Number(found["expires_ms"])];
  }

  async _delete(key: string): Promise<boolean> {
    return (await this.#limiter.ask(plainCall("DEL", key))) === 1;
  }

  _getRateLimiterRes(_key: string, changed: number, [points, ms]: State): RateLimiterRes {
    const limit = (this as unknown as { points: number }).points;
    return new RateLimiterRes(Math.max(limit - points, 0), ms, points, points === changed);
  }
}
