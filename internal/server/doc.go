// Package server moves bytes between sockets and sessions. It does not know any command.
//
// There are two transports. On Linux the default is event loops over epoll, one per core (loop_linux.go): a
// loop reads from a connection, gives its session one turn (see package session), and sends the replies in one
// write. On other systems, and for a store whose calls block, there is a goroutine per connection
// (goroutines.go). In both, the server does not read from a connection whose client has calls or replies
// waiting, so that TCP flow control stops the client. Replies are sent in pieces, and replies that wait for a
// slow reader are bounded (output.go).
//
// # Why the event loop is not a library's
//
// gnet was the first choice, and worked well until the limits were tested. It cannot stop reading
// from a connection, so a client that does not read its replies could only be disconnected. It
// closes a connection at the end of its input, even if replies are due. A connection that asks for
// another turn starves all others, because gnet empties its queue before it polls the sockets: with
// two clients that looped INFO, a PING of another client took 250 to 630 ms; here it takes 0.2 ms,
// and 2 ms at the 99th percentile. Its acceptor ends the server when there are too many open files.
// The server needs only a small part of epoll.
//
// Listeners come from the standard library: its Accept survives too many open files. A loop gets a
// duplicate of the descriptor of an accepted connection.
//
// Reads and writes are raw system calls (syscall_linux.go). They never block, so Go's scheduler
// need not be informed of them: informing it took 5 % of a busy core.
//
// # TLS
//
// crypto/tls expects a connection that blocks, but a read that timed out may be repeated. So the
// handshake runs on a goroutine, on the socket (handshake.go). Then an event loop takes the place
// of the socket under crypto/tls (tls_linux.go): a read "times out" if nothing has arrived, and
// written bytes are buffered until the socket accepts them. A goroutine per TLS connection took a
// quarter more CPU time, with 64 calls in flight and with one. It would also have needed separate
// code that applies the limits to TLS clients. With 64 calls in flight, a CL.THROTTLE takes 0.6 of
// the CPU time of an INCR of redis-server, both over TLS.
package server
