// Package grpcapi answers Envoy's rate limit service (envoy.service.ratelimit.v3.RateLimitService) over gRPC, as
// envoyproxy/ratelimit does. It knows no store and no algorithm. Package envoy says which limits a request matches. For
// each limit, the package makes a call of CL.QUOTA, or of CL.TAKE if the limit stands for a policy, in a session, which
// checks rights, counts the call and logs it, as for any other client.
//
//	server.go    the server: grpc-go's, with bounds
//	conn.go      connections: who may have one, and the sessions of their requests
//	tls.go       handshakes, and the users that certificates name
//	codec.go     messages: requests that are too long are not decoded
//	memory.go    how much memory the requests of connections may hold
//	frames.go    which requests a connection has
//	request.go   a request: what it matches, and in which order it is checked
//	count.go     what is counted, and what the calls reply
//	policy.go    what policies count in place of limits
//	answer.go    the answer, from what was counted
//	metadata.go  the metadata of the answer
//	http.go      the paths that the original has for HTTP
//	original.go  the metrics of the original
//	settings.go  the options
//	info.go      the section of INFO
//	metrics.go   what is counted for operators
//
// The connection of a peer that is not trusted is closed before anything is read from it or, if the peer may show a
// certificate, when its certificate names no user. The reason is that every byte of HTTP/2 costs memory before a
// handler can say who has sent it.
package grpcapi
