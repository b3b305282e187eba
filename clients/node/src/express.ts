/** Middleware for Express, Connect, and others with (request, response, next). */

import type { IncomingMessage, ServerResponse } from "node:http";
import { type Decision, type Limit, decisionOf, membersOf, newCall, policy } from "./calls.js";
import type { Limiter } from "./limiter.js";

type Fields = [name: string, value: string][];

const wholeSeconds = (ms: number) => String(Math.ceil(Math.round(ms * 1000) / 1_000_000));

/** The fields of a response by a limit of the program. */
export function fieldsOf(name: string, limit: Limit, d: Decision): Fields {
  const fields: Fields = [];
  if (d.cause === undefined) {
    const w = limit.period >= 1000 && limit.kind !== "QUOTA" ? `;w=${wholeSeconds(limit.period)}` : "";
    const used = d.limit - d.remaining;
    let more = 0;
    if (!d.allowed) more = d.retryAfter === Infinity ? 0 : d.retryAfter;
    else if (used > 0 && limit.kind === "THROTTLE") more = d.resetAfter - (used - 1) * (limit.period / d.limit);
    else if (used > 0 && (limit.kind === "FIXED" || limit.kind === "QUOTA")) more = d.resetAfter;
    const t = more > 0 ? `;t=${wholeSeconds(more)}` : "";
    fields.push(["RateLimit-Policy", `"${name}";q=${d.limit}${w}`], ["RateLimit", `"${name}";r=${d.remaining}${t}`]);
  }
  if (!d.allowed && d.retryAfter > 0 && d.retryAfter < Infinity) fields.push(["Retry-After", wholeSeconds(d.retryAfter)]);
  return fields;
}

const problems = "https://iana.org/assignments/http-problem-types#";

function refusalOf(policy: string, d: Decision, by: string): { type: string; title: string; status: number; policy: string } {
  const unavailable = "Request cannot be satisfied due to temporary server capacity constraints";
  const unusual = "Request not satisfied due to detection of abnormal request pattern";
  if (d.cause !== undefined && d.limit === 0) {
    return { type: `${problems}temporary-reduced-capacity`, title: unavailable, status: 503, policy };
  }
  if (by === "override") return { type: "about:blank", title: "Forbidden", status: 403, policy };
  if (by === "ban") return { type: `${problems}abnormal-usage-detected`, title: unusual, status: 429, policy };
  const title = "Request cannot be satisfied as assigned quota has been exceeded";
  return { type: `${problems}quota-exceeded`, title, status: d.retryAfter === Infinity ? 413 : 429, policy };
}

/**
 * Limits requests. by returns the subject of a request for the policy with this name, or a limit of the program:
 * app.use(rateLimit(limiter, "api", (request) => request.ip)). A refused request gets status 429; without an answer
 * and with onError "deny", 503. Mistakes are passed to next.
 */
export function rateLimit<R extends IncomingMessage>(limiter: Limiter, name: string, by: (request: R) => string | Limit) {
  return async (request: R, response: ServerResponse, next: (error?: unknown) => void): Promise<void> => {
    try {
      const [d, decidedBy, fields] = await decide(limiter, name, by(request));
      for (const [field, value] of fields) response.setHeader(field, value);
      if (d.allowed) return next();
      const body = refusalOf(name, d, decidedBy);
      response.statusCode = body.status;
      response.setHeader("Content-Type", "application/problem+json");
      response.end(`${JSON.stringify(body)}\n`);
    } catch (error) {
      next(error);
    }
  };
}

async function decide(limiter: Limiter, name: string, by: string | Limit): Promise<[Decision, string, Fields]> {
  if (typeof by !== "string") {
    const d = await limiter.do(by);
    return [d, by.kind, fieldsOf(name, by, d)];
  }
  const call = newCall(policy(name, by), 1, {}, ["VERBOSE"]);
  let reply: unknown;
  try {
    reply = await limiter.ask(call);
  } catch (error) {
    return [limiter.fallback(call, error), "", []];
  }
  const members = membersOf(reply);
  const d = { ...decisionOf(members["decision"]), allowed: Boolean(members["allowed"]) };
  return [d, String(members["decided_by"]), Object.entries(membersOf(members["fields"])).map(([k, v]) => [k, String(v)])];
}
