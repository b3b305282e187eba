// Package server moves bytes between sockets and sessions. It knows no command.
//
// There are two transports. On Linux the default is event loops over epoll, one for each core
// (loop_linux.go): a loop reads a connection, gives its session one turn, and sends what the
// session answers in one write. Elsewhere, and for a store whose calls wait, there is a goroutine
// per connection (thread.go). Either way a connection whose client has calls or replies waiting is
// not read: TCP then holds up the client. Replies are sent in pieces, and those that wait for a
// slow reader are bounded (output.go).
//
// # Why an own event loop
//
// gnet was the first choice, and served well until the bounds were tested. It cannot stop reading
// a connection, so a client that does not read its replies could only be disconnected. It closes a
// connection at the end of its input, even if replies are due. A connection that asks for another
// turn starves all others, because gnet serves its queue to the end before it polls the sockets:
// with two clients looping INFO, a PING of another client took 250 to 630 ms; here it takes 0.2 ms,
// and 2 ms at the 99th percentile. Its acceptor ends the server when there are too many open files.
// What is needed of epoll is small.
//
// Listeners are those of the standard library, whose Accept survives too many open files; the
// descriptor of an accepted connection is duplicated into a loop.
//
// Reads and writes are raw system calls (raw_linux.go). They never wait, so Go's scheduler need not
// know of them; telling it took 5 % of a busy core.
//
// # TLS
//
// crypto/tls expects a connection that waits, but a read that timed out may be tried again. So the
// handshake runs in a goroutine, on the socket (handshake.go). Then an event loop takes the place
// of the socket below crypto/tls (sealed_linux.go): a read that finds nothing "times out", and what
// is written is kept until the socket takes it. A goroutine per TLS connection took a quarter more
// CPU, with 64 calls in flight and with one, and TLS clients would have been held to their bounds
// by other code. With 64 in flight a CL.THROTTLE takes 0.6 of the CPU of an INCR of redis-server,
// both over TLS.
package server
