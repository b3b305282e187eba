/** The answer to a request: the fields, the status and the body that all middleware uses. */

import { type Decision, type Limit, decisionOf, membersOf, newCall, policy } from "./calls.js";
import type { Limiter } from "./limiter.js";

export type Fields = [name: string, value: string][];

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

/** A body of type application/problem+json. */
export interface Refusal {
  type: string;
  title: string;
  status: number;
  policy: string;
}

function refusalOf(policy: string, d: Decision, by: string): Refusal {
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

/** The subject of a request, for a policy, or a limit of the program. */
export type By = string | Limit;

/** Takes 1. The body is undefined if the request is allowed. */
export async function decide(limiter: Limiter, name: string, by: By): Promise<[fields: Fields, body?: Refusal]> {
  const [d, decidedBy, fields] = await ask(limiter, name, by);
  return d.allowed ? [fields] : [fields, refusalOf(name, d, decidedBy)];
}

async function ask(limiter: Limiter, name: string, by: By): Promise<[Decision, string, Fields]> {
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
