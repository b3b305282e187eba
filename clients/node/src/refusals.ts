/** Calls that the server has refused. */

import type { Call, Decision, Limit } from "./calls.js";

export const LONGEST = 1000; // milliseconds for which a refusal is remembered
export const MOST = 10_000;

interface Refusal {
  quantity: number; // the smallest that was refused
  at: number;
  until: number;
  d: Decision;
}

const keyOf = ({ kind, key, words }: Limit) => JSON.stringify([kind, key, ...words]);

export class Refusals {
  readonly byLimit = new Map<string, Refusal>();
  #swept = -Infinity;

  /** The decision about a call that would be refused as one before. */
  find(call: Call, now: number): Decision | undefined {
    const [take] = call.takes;
    const known = call.plain && take && this.byLimit.get(keyOf(take.limit));
    if (!known || take.quantity < known.quantity || now >= known.until) return undefined;
    const { d, at } = known;
    return { ...d, retryAfter: d.retryAfter - (now - at), resetAfter: d.resetAfter - (now - at), remembered: true };
  }

  /** Remembers the refusal of a call. After a refund, it forgets. */
  note(call: Call, d: Decision, now: number): void {
    const [take, ...others] = call.takes;
    if (!take || others.length > 0) return;
    if (take.quantity < 0) this.byLimit.delete(keyOf(take.limit));
    if (!call.plain || d.allowed || !(d.retryAfter > 0 && d.retryAfter < Infinity)) return;
    if (this.byLimit.size >= MOST) this.#sweep(now);
    if (this.byLimit.size >= MOST) return;
    this.byLimit.set(keyOf(take.limit), { quantity: take.quantity, at: now, until: now + Math.min(LONGEST, d.retryAfter), d });
  }

  /** Forgets the refusals that are over, at most ten times a second. */
  #sweep(now: number): void {
    if (now - this.#swept < LONGEST / 10) return;
    this.#swept = now;
    for (const [key, { until }] of this.byLimit) if (now >= until) this.byLimit.delete(key);
  }
}
