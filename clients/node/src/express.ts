/** Middleware for Express, Connect, and others with (request, response, next). */

import type { IncomingMessage, ServerResponse } from "node:http";
import { type By, decide } from "./http.js";
import type { Limiter } from "./limiter.js";

/**
 * Limits requests. by returns the subject of a request for the policy with this name, or a limit of the program:
 * app.use(rateLimit(limiter, "api", (request) => request.ip)). A refused request gets status 429; without an answer
 * and with onError "deny", 503. Errors that are mistakes of the program are passed to next.
 */
export function rateLimit<R extends IncomingMessage>(limiter: Limiter, name: string, by: (request: R) => By) {
  return async (request: R, response: ServerResponse, next: (error?: unknown) => void): Promise<void> => {
    try {
      const [fields, body] = await decide(limiter, name, by(request));
      for (const [field, value] of fields) response.setHeader(field, value);
      if (!body) return next();
      response.statusCode = body.status;
      response.setHeader("Content-Type", "application/problem+json");
      response.end(`${JSON.stringify(body)}\n`);
    } catch (error) {
      next(error);
    }
  };
}
