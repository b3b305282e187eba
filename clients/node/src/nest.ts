/** A guard for NestJS, and a storage for @nestjs/throttler. */

import { type CanActivate, type ExecutionContext, HttpException } from "@nestjs/common";
import type { ThrottlerStorage } from "@nestjs/throttler";
import { slidingLog } from "./calls.js";
import type { Client } from "./client.js";
import { type By, decide } from "./http.js";
import { Limiter, type Options } from "./limiter.js";

/**
 * Limits requests over HTTP, as rateLimit of cellserver/express does:
 * app.useGlobalGuards(new RateLimitGuard(limiter, "api", (context) => context.switchToHttp().getRequest().ip)).
 */
export class RateLimitGuard implements CanActivate {
  constructor(readonly limiter: Limiter, readonly name: string, readonly by: (context: ExecutionContext) => By) {}

  async canActivate(context: ExecutionContext): Promise<boolean> {
    const response = context.switchToHttp().getResponse<{ header(name: string, value: string): unknown }>();
    const [fields, body] = await decide(this.limiter, this.name, this.by(context));
    for (const [field, value] of fields) response.header(field, value);
    if (!body) return true;
    response.header("Content-Type", "application/problem+json");
    throw new HttpException(body, body.status);
  }
}

const inSeconds = (ms: number) => Math.ceil(ms / 1000);

/**
 * A storage for @nestjs/throttler: ThrottlerModule.forRoot({ throttlers: [...], storage: new CellserverStorage(client) }).
 * A refused request is not counted, and the next one is allowed as soon as the window has room. So a blockDuration
 * above the ttl is refused. Without an answer, onError decides.
 */
export class CellserverStorage implements ThrottlerStorage {
  readonly #limiter: Limiter;
  readonly #prefix: string;

  constructor(client: Client, { prefix = "throttler:", ...options }: Options & { prefix?: string } = {}) {
    this.#limiter = new Limiter(client, options);
    this.#prefix = prefix;
  }

  async increment(key: string, ttl: number, limit: number, blockDuration: number, name: string) {
    if (blockDuration > ttl) throw new Error(`cellserver: the blockDuration of throttler ${name} must be at most its ttl`);
    const d = await this.#limiter.do(slidingLog(`${this.#prefix}${name}:${key}`, limit, ttl));
    const wait = d.retryAfter > 0 && d.retryAfter < Infinity ? d.retryAfter : ttl;
    return {
      totalHits: d.allowed ? d.limit - d.remaining : limit + 1,
      timeToExpire: inSeconds(d.resetAfter),
      isBlocked: !d.allowed,
      timeToBlockExpire: d.allowed ? 0 : inSeconds(wait),
    };
  }
}
