import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import * as calls from "./calls.js";
import type { Call, CallOptions, Decision, Limit, Part, Rate } from "./calls.js";
import { type Client, type Sender, senderOf } from "./client.js";
import { Breaker, Buckets } from "./outage.js";
import { Refusals } from "./refusals.js";

export interface Options {
  /** The milliseconds for all tries of a call; 100 by default. */
  timeout?: number;
  /**
   * How often a call without a reply is sent again in that time, 5 by default: calls share a connection, and lose their
   * replies when it ends. A call has an ID, so that it counts once. With 0, it has none, unless ioredis repeats calls.
   */
  retries?: number;
  /** How a call is decided if the server does not answer: "allow" by default. */
  onError?: "allow" | "deny" | "local";
  /** The part of each limit that this process admits with "local", such as 0.25 for one of four processes. */
  share?: number;
  /**
   * Repeats a refusal without asking the server, until its retryAfter is over, and for a second at most. It refuses calls
   * of the same limit that have at least the refused quantity and no options, even if another client resets the limit.
   */
  remember?: boolean;
  /** Called after each call, with the name of its command, for metrics and traces. */
  observe?: (command: string, decision: Decision | undefined, error?: unknown) => void;
}

/** Makes calls through a client of node-redis or ioredis. A process needs only one. */
export class Limiter {
  readonly sender: Sender;
  readonly #options: Required<Omit<Options, "observe">> & Pick<Options, "observe">;
  readonly #breaker = new Breaker();
  readonly #buckets: Buckets;
  readonly #refusals?: Refusals;

  constructor(client: Client, options: Options = {}) {
    this.sender = senderOf(client);
    this.#options = { timeout: 100, retries: 5, onError: "allow", share: 0, remember: false, ...options };
    if (options.remember) this.#refusals = new Refusals();
    this.#buckets = new Buckets(this.#options.share);
  }

  /** Takes a quantity from a limit, such as fixed("user:42", 100, 3_600_000). A negative quantity is a refund. */
  do(limit: Limit, quantity = 1, options?: CallOptions): Promise<Decision> {
    return this.#decide(calls.newCall(limit, quantity, options));
  }

  /** Takes from a token bucket. */
  throttle(key: string, rate: Rate, quantity = 1, options?: CallOptions): Promise<Decision> {
    return this.do(calls.throttle(key, rate), quantity, options);
  }

  /** Takes from the limits of a policy. */
  take(policy: string, subject: string, quantity = 1, options?: CallOptions): Promise<Decision> {
    return this.do(calls.policy(policy, subject), quantity, options);
  }

  /** Takes from several limits, or from none. The second result has a decision for each part. */
  async all(parts: readonly Part[], options: Pick<CallOptions, "peek" | "wait"> = {}): Promise<[Decision, Decision[]]> {
    const call = calls.newAll(parts, options);
    let each: Decision[] = [];
    const d = await this.#decide(call, (reply) => {
      const [whole, of] = calls.decisionsOf(reply);
      each = of;
      return whole;
    });
    return [d, each];
  }

  /** Charges an estimate on the limits of a policy. Settle it within ttl milliseconds, or it stays charged. */
  hold(policy: string, subject: string, estimate: number, ttl: number): Promise<[Hold | undefined, Decision]> {
    return this.holdOn(calls.policy(policy, subject), estimate, ttl);
  }

  /** Charges an estimate on a limit. */
  async holdOn(limit: Limit, estimate: number, ttl: number, options?: CallOptions): Promise<[Hold | undefined, Decision]> {
    const id = randomUUID();
    const d = await this.#decide(calls.newCall(limit, estimate, options, ["HOLD", id, calls.word(ttl)]));
    const settle = async (used: number): Promise<Decision> => {
      if (d.cause !== undefined) return { ...calls.refused, allowed: true }; // the server has charged nothing
      const settled = await this.#decide(calls.newCall(limit, used, {}, ["SETTLE", id]));
      return { ...settled, taken: 0, corrected: settled.taken };
    };
    return [d.allowed ? { settle, void: () => settle(0) } : undefined, d];
  }

  /** Acquires a permit, which is renewed until it is released, unless limit permits are held. */
  async acquire(key: string, limit: number, ttl: number, options?: Pick<CallOptions, "wait">): Promise<[Lease | undefined, Decision]> {
    const holder = randomUUID();
    const lease = new Lease(this, key, holder, ttl);
    const words = [String(limit), calls.word(ttl), holder];
    const d = await this.#decide(calls.newCall({ kind: "ACQUIRE", key, words, size: 0, period: 0 }, 1, options));
    if (d.allowed && d.cause === undefined) lease.keep();
    if (!d.allowed && d.cause !== undefined) void lease.release(); // it may have been granted, although there is no reply
    return [d.allowed ? lease : undefined, d];
  }

  async #decide(call: Call, read: (reply: unknown) => Decision = calls.decisionOf): Promise<Decision> {
    let d = this.#refusals?.find(call, performance.now());
    if (!d) {
      let reply: unknown;
      try {
        reply = await this.ask(call);
      } catch (error) {
        return this.fallback(call, error);
      }
      d = read(reply);
      this.#refusals?.note(call, d, performance.now());
    }
    this.#options.observe?.(String(call.words[0]), d);
    return d;
  }

  /** Decides a call without the server, or throws the error if it is a mistake. */
  fallback(call: Call, error: unknown): Decision {
    const { onError, observe } = this.#options;
    if (!calls.noAnswer(error)) {
      observe?.(String(call.words[0]), undefined, error);
      throw error;
    }
    const made = onError === "local" ? this.#buckets.take(call, performance.now()) : { ...calls.refused, allowed: onError === "allow" };
    const d = { ...made, cause: error };
    observe?.(String(call.words[0]), d);
    return d;
  }

  /** Returns the reply to a call, or throws what prevented it. */
  async ask(call: Call): Promise<unknown> {
    const { timeout, retries } = this.#options;
    if (!this.#breaker.admit(performance.now())) throw new Error("cellserver: the server has not answered the last calls");
    const words = [...call.words];
    if (call.mayHaveID && (retries > 0 || this.sender.repeats)) words.push("ID", calls.newID());
    let timer: NodeJS.Timeout | undefined;
    let late = false;
    const deadline = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        late = true;
        reject(new Error("cellserver: no reply in time"));
      }, timeout + call.wait);
    });
    const send = async (): Promise<unknown> => {
      for (let attempt = 0; ; attempt++) {
        const ready = this.sender.ready();
        if (ready) await ready;
        if (late) return undefined; // nobody waits for it
        try {
          return await this.sender.send(words);
        } catch (error) {
          if (!calls.lost(error) || attempt >= retries) throw error;
        }
        await sleep(5);
      }
    };
    const alone = call.wait > 0 ? this.sender.alone(words) : undefined;
    try {
      const reply = await Promise.race([alone ? alone.reply : send(), deadline]);
      this.#breaker.count(false);
      return reply;
    } catch (error) {
      this.#breaker.count(calls.lost(error));
      throw error;
    } finally {
      clearTimeout(timer);
      alone?.reply.catch(() => {});
      alone?.end();
    }
  }
}

/** A charge that is corrected later, once. */
export interface Hold {
  /** Corrects the charge to what was used. It may be repeated with the same quantity. */
  settle(used: number): Promise<Decision>;
  /** Gives back the whole charge, as far as that is possible. */
  void(): Promise<Decision>;
}

/** A permit. */
export class Lease {
  readonly #lost = new AbortController();

  constructor(readonly limiter: Limiter, readonly key: string, readonly holder: string, readonly ttl: number) {}

  /** Aborts when the permit is lost or released: pass it to the work that needs the permit. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /** Gives the permit back. */
  async release(): Promise<void> {
    this.#lost.abort();
    await this.limiter.ask(calls.plainCall("CL.RELEASE", this.key, this.holder)).catch((error: unknown) => {
      if (!calls.noAnswer(error)) throw error;
    });
  }

  /** Renews the permit every third of its ttl, until it is released or lost. */
  keep(): void {
    let renewed = performance.now();
    const again = async () => {
      const began = performance.now();
      if (this.signal.aborted) return;
      if (began >= renewed + this.ttl) return this.#lost.abort();
      try {
        const words = ["CL.RENEW", this.key, calls.word(this.ttl), this.holder];
        if ((await this.limiter.ask(calls.plainCall(...words))) !== 1) return this.#lost.abort();
        renewed = began;
      } catch (error) {
        if (!calls.noAnswer(error)) return this.#lost.abort();
      }
      plan();
    };
    const plan = () => {
      const next = Math.min(this.ttl / 3, Math.max(0, renewed + this.ttl - performance.now()));
      setTimeout(again, next).unref();
    };
    plan();
  }
}
