/** What happens while the server does not answer. */

import { type Call, type Decision, type Limit, type Take, refused } from "./calls.js";

export const FAILURES = 5; // calls without a reply, one after the other, before calls fail at once
const PROBE = 100; // milliseconds between calls to a server that does not answer
export const MOST_BUCKETS = 10_000;

/** Lets one call in 100 ms pass after five calls without a reply. */
export class Breaker {
  #failed = 0;
  #next = 0;

  admit(now: number): boolean {
    if (this.#failed < FAILURES) return true;
    if (now < this.#next) return false;
    this.#next = now + PROBE;
    return true;
  }

  count(lost: boolean): void {
    this.#failed = lost ? this.#failed + 1 : 0;
  }
}

interface Bucket {
  tokens: number;
  size: number;
  rate: number; // tokens a millisecond
  at: number;
}

function fill(b: Bucket, now: number): void {
  b.tokens = Math.min(b.size, b.tokens + b.rate * Math.max(0, now - b.at));
  b.at = now;
}

function waitOf(b: Bucket, t: Take): number {
  const needs = (t.upto ? Math.min(t.quantity, 1) : t.quantity) + (t.leave ?? 0);
  if (t.force || t.quantity < 0 || needs <= b.tokens) return 0;
  return needs > b.size ? Infinity : (needs - b.tokens) / b.rate;
}

/** Token buckets of this process, with a share of each limit. */
export class Buckets {
  readonly byKey = new Map<string, Bucket>();
  #swept = -Infinity;

  constructor(readonly share: number) {}

  /** Takes from the buckets of all limits of a call, or from none. */
  take(call: Call, now: number): Decision {
    const found: [Bucket, Take][] = [];
    for (const t of call.takes) {
      const b = this.#find(t.limit, now);
      if (!b) return { ...refused, retryAfter: Infinity };
      found.push([b, t]);
    }
    if (found.length === 0) return { ...refused, retryAfter: Infinity };
    const retryAfter = Math.max(...found.map(([b, t]) => waitOf(b, t)));
    const d = { ...refused, allowed: retryAfter === 0, retryAfter };
    for (const [b, t] of found) {
      if (d.allowed && !t.peek) {
        const taken = t.upto ? Math.min(t.quantity, Math.floor(b.tokens - (t.leave ?? 0))) : t.quantity;
        b.tokens = Math.min(b.size, b.tokens - taken);
        d.taken = t.upto ? taken : 0;
      }
      d.limit = Math.floor(b.size);
      d.remaining = Math.max(0, Math.floor(b.tokens));
      d.resetAfter = (b.size - b.tokens) / b.rate;
    }
    return d;
  }

  #find(limit: Limit, now: number): Bucket | undefined {
    const size = this.share * limit.size;
    if (!(limit.period > 0) || !(size >= 1)) return undefined;
    const key = `${limit.kind} ${limit.key}`;
    let b = this.byKey.get(key);
    if (!b) {
      if (this.byKey.size >= MOST_BUCKETS && !this.#sweep(now)) return undefined;
      b = { tokens: size, size, rate: 0, at: now };
      this.byKey.set(key, b);
    }
    b.size = size;
    b.rate = size / limit.period;
    fill(b, now);
    return b;
  }

  /** Removes full buckets, at most once a second: a new bucket is full too. */
  #sweep(now: number): boolean {
    if (now - this.#swept < 1000) return false;
    this.#swept = now;
    for (const [key, b] of this.byKey) {
      fill(b, now);
      if (b.tokens >= b.size) this.byKey.delete(key);
    }
    return this.byKey.size < MOST_BUCKETS;
  }
}
