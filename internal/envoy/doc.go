// Package envoy has the limits of Envoy's rate limit service, as envoyproxy/ratelimit configures them: files in YAML,
// or messages of a control plane, with domains, whose descriptors are matched against the descriptors of requests. It
// knows neither gRPC nor the store.
//
//	read.go      a file to values, with the types that the original's decoder has
//	lines.go     where a value stands in its file, and what is accepted but probably a mistake
//	build.go     values to a Config, refused as a whole with file, line and reason
//	config.go    what a Config consists of, and which limit a descriptor matches
//	patterns.go  the patterns of a level, found by an index
//	counts.go    how often each limit has decided
//	values.go    the same by the values of requests
//	key.go       the names of the keys that count
//	subject.go   policies in place of limits, and their subjects
//	message.go   messages of a control plane to values
//	current.go   the configuration in force
//	files.go     files, and how they are read again
//
// # Matching
//
// A request has descriptors, and each is a list of entries with a key and a value. The first entry is looked for among
// the descriptors of the domain, the second among those below the one that was found, and so on. Each is looked for by
// the text key_value: exactly, then among the patterns, in the order of the file, and then by the key alone. The limit
// of the last one counts. So a limit must be as deep as the descriptor has entries, and the request a=b finds the key
// a_b: both are as in the original.
package envoy
