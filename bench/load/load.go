// Package load makes load for servers that speak RESP: closed, where a connection waits for its
// replies before it calls again, and open, where calls are made at a fixed rate. It is one loop on
// one thread, so that it uses no more CPU time than a server.
package load

// Target is where a server listens: "tcp" and 127.0.0.1:6379, or "unix" and a path.
type Target struct{ Network, Address string }
