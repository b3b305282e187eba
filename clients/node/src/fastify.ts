/** A hook for Fastify, and a store for @fastify/rate-limit. */

import type { FastifyReply, FastifyRequest } from "fastify";
import { fixed, membersOf, newCall, plainCall } from "./calls.js";
import type { Client } from "./client.js";
import { type By, decide } from "./http.js";
import { Limiter } from "./limiter.js";

/**
 * Limits requests, as rateLimit of cellserver/express does:
 * app.addHook("onRequest", rateLimit(limiter, "api", (request) => request.ip)).
 */
export function rateLimit(limiter: Limiter, name: string, by: (request: FastifyRequest) => By) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | undefined> => {
    const [fields, body] = await decide(limiter, name, by(request));
    for (const [field, value] of fields) reply.header(field, value);
    if (!body) return undefined;
    return reply.code(body.status).type("application/problem+json").send(`${JSON.stringify(body)}\n`);
  };
}

type Answer = (error: Error | null, result?: { current: number; ttl: number }) => void;

interface Settings {
  continueExceeding?: boolean;
  exponentialBackoff?: boolean;
  routeInfo?: { method?: unknown; url?: string };
}

// Calls of a window, which @fastify/rate-limit compares with its own max.
const MANY = 1_000_000_000_000;

/**
 * A store for @fastify/rate-limit: app.register(plugin, { store: storeOf(client), max: 100, timeWindow: 60_000 }). Its
 * options continueExceeding and exponentialBackoff are refused. Without an answer, skipOnError of the plugin decides.
 */
export function storeOf(client: Client, options: { prefix?: string; timeout?: number; retries?: number } = {}) {
  const { prefix: first = "fastify-rate-limit-", ...own } = options;
  const limiter = new Limiter(client, { ...own, onError: "deny" });
  return class CellserverStore {
    constructor(settings: Settings, readonly prefix: string = first) {
      if (settings.continueExceeding || settings.exponentialBackoff) {
        throw new Error("cellserver: continueExceeding and exponentialBackoff are not possible with this store");
      }
    }

    incr(key: string, answer: Answer, timeWindow: number): void {
      const call = newCall(fixed(this.prefix + key, MANY, timeWindow), 1);
      const counted = limiter.ask(call).then((reply) => {
        const [, limit = 0, remaining = 0, , ttl = 0] = reply as number[];
        return { current: limit - remaining, ttl };
      });
      counted.then((result) => answer(null, result), answer);
    }

    read(key: string, answer: Answer): void {
      const found = limiter.ask(plainCall("CL.INSPECT", this.prefix + key)).then((reply) => {
        const members = membersOf(reply);
        return { current: Number(membersOf(members["state"])["used"] ?? 0), ttl: Number(members["expires_ms"] ?? 0) };
      });
      found.then((result) => answer(null, result), answer);
    }

    child(route: Settings): CellserverStore {
      return new CellserverStore(route, `${this.prefix}${String(route.routeInfo?.method ?? "")}${route.routeInfo?.url ?? ""}-`);
    }
  };
}
