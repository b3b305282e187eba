// Package load makes load for servers that speak RESP: closed, in which a connection waits for its
// replies, and open, in which calls come at a fixed rate. It is one loop on one thread, so that it
// costs no more than what it measures.
package load

// Target is where a server listens: "tcp" and 127.0.0.1:6379, or "unix" and a path.
type Target struct{ Network, Address string }
