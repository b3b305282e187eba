/**
 * Limits rates with a cellserver, through node-redis or ioredis.
 *
 * A call that the server cannot decide does not throw: onError decides, and cause of the decision says why. An error
 * means that the call is wrong, or not permitted.
 */
export { type CallOptions, type Decision, type Limit, type Part, type Rate } from "./calls.js";
export { fixed, noAnswer, policy, quota, sliding, slidingLog, throttle } from "./calls.js";
export type { Client, IORedis, NodeRedis } from "./client.js";
export { type Hold, Lease, Limiter, type Options } from "./limiter.js";
