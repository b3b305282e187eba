// Package grpcapi answers Envoy's rate limit service (envoy.service.ratelimit.v3.RateLimitService) over gRPC, as
// envoyproxy/ratelimit does. It knows no store and no algorithm: package envoy says which limits a request matches, and
// each is a call of CL.QUOTA in a session, which checks rights, counts it and logs it, as for any other client.
//
//	server.go    the server: grpc-go's, with bounds
//	conn.go      connections: who may have one, and the sessions of their requests
//	memory.go    how much memory they may hold
//	request.go   a request: what it matches, and in which order it is checked
//	count.go     what is counted, and what the calls reply
//	answer.go    the answer, from what was counted
//	settings.go  the options
//	metrics.go   what is counted for operators
//
// A peer that is not trusted has its connection closed before it is read, because every byte of HTTP/2 costs memory
// before it is known who sends it.
package grpcapi
