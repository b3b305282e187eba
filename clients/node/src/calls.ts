/** Makes the words of calls, and decisions of replies. It uses no connection. */

import { randomUUID } from "node:crypto";

/** The answer to a call. Times are milliseconds. */
export interface Decision {
  allowed: boolean;
  limit: number;
  remaining: number;
  /** The time until the call would be allowed: 0 if it is allowed, Infinity if it never will be. */
  retryAfter: number;
  /** The time until the limit has fully recovered. */
  resetAfter: number;
  /** What a call with upto has taken. */
  taken: number;
  /** What Hold.settle has corrected; negative if it was given back. */
  corrected: number;
  /** Why onError made the decision; undefined if the server did. */
  cause?: unknown;
  /** Whether the decision repeats an earlier refusal, because of the option remember. */
  remembered?: true;
}

/** What a call takes from: a limiter and its key, or a policy and its subject. The functions below make one. */
export interface Limit {
  readonly kind: string;
  readonly key: string;
  readonly words: readonly string[];
  /** 0 if only the server knows it. */
  readonly size: number;
  /** The milliseconds in which the size comes back; 0 if only the server knows it. */
  readonly period: number;
}

/** A bucket of burst tokens, which gets count tokens back in each period of so many milliseconds. */
export interface Rate {
  burst: number;
  count: number;
  period: number;
}

/** CL.THROTTLE: a token bucket. */
export function throttle(key: string, { burst, count, period }: Rate): Limit {
  const words = [String(burst - 1), String(count), word(period)];
  return { kind: "THROTTLE", key, words, size: burst, period: count > 0 ? (period / count) * burst : 0 };
}

const window = (kind: string) => (key: string, limit: number, period: number): Limit =>
  ({ kind, key, words: [String(limit), word(period)], size: limit, period });

/** CL.FIXED: windows that begin with a first call. Periods are milliseconds. */
export const fixed = window("FIXED");
/** CL.SLIDING: a sliding window, estimated from two counters. */
export const sliding = window("SLIDING");
/** CL.SLIDINGLOG: a sliding window, exactly. */
export const slidingLog = window("SLIDINGLOG");

/** CL.QUOTA: per HOUR, DAY, WEEK, MONTH or YEAR, in UTC or in a time zone, as in DAY@Europe/Berlin. */
export function quota(key: string, limit: number, unit: string): Limit {
  return { kind: "QUOTA", key, words: [String(limit), unit], size: limit, period: 366 * 86_400_000 };
}

/** All limits of one of the server's policies, for a subject. */
export function policy(name: string, subject: string): Limit {
  return { kind: "TAKE", key: subject, words: [name], size: 0, period: 0 };
}

/** Writes a period: in seconds, or in milliseconds if it is not a whole number of seconds. */
export function word(period: number): string {
  return period % 1000 === 0 ? String(period / 1000) : `${Math.ceil(period)}ms`;
}

export interface CallOptions {
  /** Takes nothing, and gets the decision that a call without it would get. */
  peek?: boolean;
  /** Takes what is available: the decision's taken says how much. */
  upto?: boolean;
  /** Takes the quantity even if less remains. */
  force?: boolean;
  /** Leaves a part of the limit to other calls. */
  leave?: number;
  /** Waits for the limit for so many milliseconds, on a connection of its own. */
  wait?: number;
}

/** One of the limits in a call of all. With force, the quantity is taken even if less remains. */
export interface Part {
  limit: Limit;
  quantity?: number;
  force?: boolean;
}

/** A part of a call, for the local buckets. */
export interface Take extends CallOptions {
  limit: Limit;
  quantity: number;
}

export interface Call {
  words: string[];
  takes: Take[];
  wait: number;
  mayHaveID: boolean;
  /** Whether a refusal may be remembered: the call has no options, and is not a refund. */
  plain?: boolean;
}

/** The call of a limit, without ID. */
export function newCall(limit: Limit, quantity: number, options: CallOptions = {}, more: string[] = []): Call {
  const words = [`CL.${limit.kind}`, limit.key, ...limit.words, String(quantity)];
  if (options.peek) words.push("PEEK");
  if (options.upto) words.push("UPTO");
  if (options.force) words.push("FORCE");
  if (options.leave) words.push("LEAVE", String(options.leave));
  if (options.wait) words.push("WAIT", String(Math.ceil(options.wait)));
  const mayHaveID = !options.peek && limit.kind !== "ACQUIRE" && more[0] !== "HOLD" && more[0] !== "SETTLE";
  const plain = quantity > 0 && limit.kind !== "ACQUIRE" && more.length === 0 && !Object.values(options).some(Boolean);
  words.push(...more, "MS");
  return { words, takes: [{ ...options, limit, quantity }], wait: options.wait ?? 0, mayHaveID, plain };
}

export function newAll(parts: readonly Part[], options: Pick<CallOptions, "peek" | "wait">): Call {
  const words = ["CL.ALL", String(parts.length)];
  for (const { limit, quantity = 1, force } of parts) {
    words.push(limit.kind, limit.key, ...limit.words, String(quantity));
    if (force) words.push("FORCE");
  }
  if (options.peek) words.push("PEEK");
  if (options.wait) words.push("WAIT", String(Math.ceil(options.wait)));
  const takes = parts.map((p) => ({ peek: options.peek, force: p.force, limit: p.limit, quantity: p.quantity ?? 1 }));
  return { words: [...words, "MS"], takes, wait: options.wait ?? 0, mayHaveID: !options.peek };
}

/** A call whose words may be sent again as they are. */
export const plainCall = (...words: string[]): Call => ({ words, takes: [], wait: 0, mayHaveID: false });

/** Reads a decision whose times are milliseconds. */
export function decisionOf(reply: unknown): Decision {
  if (!Array.isArray(reply) || reply.length < 5 || reply.length > 6 || !reply.every((n) => typeof n === "number")) {
    throw new Error(`cellserver: the reply is ${JSON.stringify(reply)}`);
  }
  const [limited, limit, remaining, retry, resetAfter, taken = 0] = reply as [number, number, number, number, number, number?];
  return { allowed: limited === 0, limit, remaining, retryAfter: retryAfter(limited, retry), resetAfter, taken, corrected: 0 };
}

const retryAfter = (limited: number, retry: number) => (limited === 0 ? 0 : retry < 0 ? Infinity : retry);

export const refused: Decision = { allowed: false, limit: 0, remaining: 0, retryAfter: 0, resetAfter: 0, taken: 0, corrected: 0 };

/** Reads the reply to CL.ALL. */
export function decisionsOf(reply: unknown): [Decision, Decision[]] {
  if (!Array.isArray(reply) || reply.length < 3) throw new Error(`cellserver: the reply is ${JSON.stringify(reply)}`);
  const [limited, retry, ...parts] = reply as [number, number, ...unknown[]];
  return [{ ...refused, allowed: limited === 0, retryAfter: retryAfter(limited, retry) }, parts.map(decisionOf)];
}

/** Reads a map of RESP3, or of RESP2. */
export function membersOf(reply: unknown): Record<string, unknown> {
  if (reply instanceof Map) return Object.fromEntries(reply) as Record<string, unknown>;
  if (!Array.isArray(reply)) return (reply ?? {}) as Record<string, unknown>;
  return Object.fromEntries(reply.flatMap((name, i) => (i % 2 === 0 ? [[String(name), reply[i + 1]]] : [])));
}

const unable = ["LOADING", "OOM", "MISCONF", "STOREDOWN", "STOREUNSURE", "STOREBUSY", "ERR max number of clients reached"];

/** Whether an error is an error reply, of either Redis client. */
function isReply(error: unknown): error is Error {
  for (let p: unknown = error; p; p = Object.getPrototypeOf(p)) {
    const name = (p as { constructor?: { name?: string } }).constructor?.name;
    if (name === "ErrorReply" || name === "SimpleError" || name === "ReplyError") return true;
  }
  return false;
}

/** Whether an error means that the server did not decide. All other errors are mistakes of the program. */
export function noAnswer(error: unknown): boolean {
  if (isReply(error)) return unable.some((w) => error.message === w || error.message.startsWith(`${w} `));
  return error instanceof Error && !(error instanceof TypeError) && !isAborted(error);
}

/** Whether the caller has aborted. The AbortError of ioredis, for a connection that has closed, has no code. */
const isAborted = (error: Error): boolean => error.name === "AbortError" && "code" in error;

/** Whether there was no reply at all. */
export const lost = (error: unknown): boolean => noAnswer(error) && !isReply(error);

let ids = 0;
const prefix = randomUUID().slice(0, 18);

/** A word that no other call has. */
export const newID = (): string => `${prefix}-${(ids++).toString(36)}`;
