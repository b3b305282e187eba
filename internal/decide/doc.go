// Package decide makes the decisions of limiters: requests and options go in, decisions come out. The families of
// limiters and policies parse requests and write replies; everything in between is here, once.
//
//	decide.go    a Call, and how it is decided and answered
//	attempt.go   one run of a call: one step of the store
//	wait.go      WAIT: whether a call waits, for which key, and behind which calls
//	once.go      ID: calls that a client may repeat
//	hold.go      HOLD and SETTLE: charges that may be corrected
//	parts.go     the policies of a call, and the standings of their subjects
//	policies.go  what CL.ALL needs of the family of policies
//	explain.go   what a call would be answered, and why (CL.EXPLAIN)
//	thresholds.go  reports of subjects that reach thresholds of a policy (notify)
//	fallback.go  decisions that the store does not make (--store-fails)
//	options.go   options, modes and the five integers of a reply
//	metrics.go   metrics, and the lines of INFO
//
// A limiter on one key is a Call with one request, CL.ALL is a Call with several, and a policy adds a Part: its limits
// are requests like others, and the standing of its subject (an exemption or a ban) may decide them first. An option of
// one request, such as LEAVE, is a field of store.LimitRequest. An option of the whole call is a field of Call. So each
// attempt is one step of the store, and a new option or a new front, such as another protocol, needs no variant of it.
//
// Most calls have no options. Their rows ask the store directly, because a Call allocates memory and takes half as long
// again. They make a Call only when the store returns an error (Decider.OnError).
//
// # The order of an attempt
//
//  1. The standings of the subjects are read. An exemption or a ban decides its part without asking limits. A call that
//     a part refuses takes nothing, does not wait, and is not remembered.
//  2. If other calls wait for one of the keys, the call has to wait behind them.
//  3. If the ID of the call is remembered, the call gets the decisions of the earlier call.
//  4. The store takes from all requests or from none. A refusal is counted for a ban.
//  5. The call waits, or the reply is written.
//
// A store over a network makes steps 1 and 4 in one round trip (store.Stepper), or steps 3 and 4 if there is an ID.
//
// # What was tried
//
// Single limiters, CL.ALL and policies each had their own way through WAIT, ID and --store-fails. Each option had to be
// written several times, and they came to differ: CL.ALL ignored WAIT beside PEEK, where the others refused it. So
// there is one attempt for all of them.
package decide
