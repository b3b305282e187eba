// Package envoy has the limits of Envoy's rate limit service, in the format of envoyproxy/ratelimit: YAML files, or
// messages of a control plane. A configuration has domains, and a domain has descriptors, which are matched against the
// descriptors of requests. The package knows neither gRPC nor the store.
//
// In this package and in grpcapi, the original is envoyproxy/ratelimit.
//
//	read.go      a file to values, with the types that the original's decoder has
//	lines.go     the lines of values, and warnings about what is accepted but probably a mistake
//	build.go     values to a Config, refused as a whole with file, line and reason
//	config.go    what a Config consists of, and which limit a descriptor matches
//	patterns.go  the patterns of a level, found by an index
//	parts.go     the texts between two * of patterns, found in one pass
//	counts.go    how often each limit has decided
//	values.go    how often, by the values of requests
//	key.go       the names of the keys that count
//	subject.go   policies in place of limits, and their subjects
//	message.go   messages of a control plane to values
//	current.go   the configuration in force
//	files.go     files, and how they are read again
//
// # Matching
//
// A request has descriptors. Each is a list of entries, and an entry is a key and a value. The first entry is looked up
// among the descriptors of the domain, the second among the descriptors below the first match, and so on. An entry is
// looked up by the text key_value: first exactly, then among the patterns, in the order of the file, and then by its
// key alone. The limit at the match of the last entry counts. So a limit must be as deep as the request's descriptor
// has entries, and the request a=b finds the key a_b, as in the original.
package envoy
