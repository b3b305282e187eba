package server

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"cellserver/internal/session"
)

// loopConn is a connection of an event loop. Only the goroutine of the loop uses it, except for
// wake, cut and the atomic fields.
type loopConn struct {
	loop       *loop
	fd         int
	session    *session.Session
	output     outputBuffer
	tls        *tlsConn    // nil without TLS
	events     uint32      // the events that epoll reports
	opened     atomic.Bool // the session has been opened: wake and cut may send messages to the loop
	woken      atomic.Bool
	wasCut     atomic.Bool // cut has been called
	queued     bool
	unwritable bool // the socket buffer is full
	inputEnded bool // the client has closed its direction
	drainReads int  // number of reads while the loop drains
	closed     bool
	local      string
	remote     string
}

// wake makes the loop resume the session. Like cut, it may be called from any goroutine at any
// time.
func (k *loopConn) wake() {
	if k.woken.CompareAndSwap(false, true) && k.opened.Load() {
		k.loop.post(message{conn: k})
	}
}

// cut makes the loop close the connection.
func (k *loopConn) cut() {
	if k.wasCut.Store(true); k.opened.Load() {
		k.loop.post(message{conn: k, cut: true})
	}
}

// join adds a new connection to the loop.
func (k *loopConn) join() {
	l := k.loop
	if k.closed {
		return // a message to cut it came first
	}
	if k.wasCut.Load() { // before the session was opened, so that there was no message
		k.close()
		return
	}
	k.events = unix.EPOLLIN
	if err := l.add(k.fd, k.events); err != nil {
		l.log.Warn("cannot register a connection with epoll", "peer", k.remote, "error", err)
		k.close()
		return
	}
	l.connByFD[k.fd] = k
	if l.draining || k.tls != nil {
		k.step()
	}
	if k.woken.Swap(false) && !k.closed {
		k.resume()
	}
}

// onEvents handles the events that epoll has reported. The next read or write returns an error of
// the socket.
func (k *loopConn) onEvents(events uint32) {
	if events&unix.EPOLLOUT != 0 {
		k.unwritable = false
		k.step()
	}
	if k.tls != nil {
		k.tls.inputDrained = false
	}
	if !k.closed && !k.inputEnded && !k.busy() && events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		k.read()
	} else if !k.closed && (events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 || events&unix.EPOLLRDHUP != 0 &&
		k.session.IsBlocked()) {
		k.close() // the connection has ended, and nothing will be read or written
	}
}

// busy reports whether the client has calls or replies waiting. The loop does not read from a busy
// connection, so that TCP flow control stops the client.
func (k *loopConn) busy() bool { return k.queued || k.session.HasUnanswered() || k.waiting() > 0 }

// waiting returns the number of bytes that the socket has not accepted.
func (k *loopConn) waiting() int {
	waiting := k.output.waiting(k.session)
	if k.tls != nil {
		waiting += k.tls.unsent()
	}
	return waiting
}

// read passes input that has arrived to the session, and returns the number of bytes.
func (k *loopConn) read() int {
	n, err := k.receive()
	switch {
	case n > 0:
		k.loop.moved.In += int64(n)
		k.session.Counts.BytesIn.Add(int64(n))
		k.loop.moved.Reads++
		k.session.Feed(k.loop.buffer[:n])
		k.step()
	case err == unix.EAGAIN || err == unix.EINTR:
		if k.waiting() > 0 {
			k.step() // crypto/tls has written something, such as an alert
		}
	case n == 0 && err == nil: // the client closed its direction, but may still read its replies, as nc does
		k.inputEnded = true
		k.step()
	default:
		k.close()
	}
	return max(n, 0)
}

// readMore reads what crypto/tls has buffered, and reports whether there was anything.
func (k *loopConn) readMore() bool {
	return k.tls != nil && k.tls.hasMore && !k.closed && !k.inputEnded && !k.busy() && k.read() > 0
}

// resume lets the session continue. Replies that are waiting are sent first.
func (k *loopConn) resume() {
	if k.closed {
		return
	}
	if k.waiting() == 0 {
		k.session.Resume()
	}
	k.step()
}

// step sends a piece of the session's output, and decides what the connection waits for next.
func (k *loopConn) step() {
	if k.closed || k.disconnectSlow(uncheckedBytes) || !k.send() {
		return
	}
	s, l := k.session, k.loop
	waiting, owing := k.waiting(), s.HasUnanswered()
	s.SetUnsent(waiting)
	switch {
	case waiting > 0 && k.disconnectSlow(0):
	case waiting > 0 && k.unwritable && k.output.closeTimedOut(s.Closing(), l.instance.Now()):
		k.close()
	case waiting > 0 && k.unwritable:
		l.slow[k] = struct{}{}
		k.setEvents(unix.EPOLLOUT)
	case waiting > 0 || s.More() || s.HasMail():
		k.queueTurn()
	case s.Closing() && l.linger(k):
	case s.Closing():
		k.discardInput()
		k.close()
	case owing && s.IsBlocked():
		k.setEvents(unix.EPOLLRDHUP) // until it is woken, or the client closes the connection
	case owing:
		k.setEvents(0) // until it is woken
	case k.inputEnded:
		k.close()
	case l.draining:
		k.readRest()
	case k.tls != nil && k.tls.hasMore:
		k.queueTurn()
	default:
		k.setEvents(unix.EPOLLIN)
	}
}

// disconnectSlow closes the connection if more than least bytes of output wait and exceed the
// output limit. It reports whether it has closed the connection.
func (k *loopConn) disconnectSlow(least int) bool {
	waiting, l := k.waiting(), k.loop
	if waiting <= least || !k.output.exceedsLimit(k.session, l.instance.Now()) {
		return false
	}
	k.session.CountOutputCut()
	l.log.Warn("disconnected a client that reads its replies too slowly", "peer", k.remote, "bytes", waiting)
	k.close()
	return true
}

// receive reads input that has arrived into the loop's buffer, and decrypts it.
func (k *loopConn) receive() (int, error) {
	if k.tls != nil {
		return k.tls.receive(k.loop.buffer)
	}
	return read(k.fd, k.loop.buffer)
}

// transmit encrypts bytes and writes them to the socket.
func (k *loopConn) transmit(b []byte) (int, error) {
	if k.tls == nil {
		return write(k.fd, b)
	}
	waited := k.tls.unsent()
	n, err := k.tls.transmit(b)
	if waited > 0 && (n > 0 || k.tls.unsent() < waited) {
		k.session.MarkActive() // a client that reads is not idle
	}
	return n, err
}

// readRest answers the calls that have arrived while the server shuts down, and closes the
// connection when there are no more.
func (k *loopConn) readRest() {
	if k.tls != nil {
		k.tls.inputDrained = false
	}
	if k.drainReads++; k.drainReads > lastReads || k.read() == 0 {
		k.close()
	}
}

// discardInput reads input that will not be answered. If a socket is closed with unread input, the
// system sends a reset, and the client may lose the last replies.
func (k *loopConn) discardInput() {
	for range lastReads {
		if n, err := read(k.fd, k.loop.buffer); n <= 0 || err != nil {
			return
		}
	}
}

// send writes one piece to the socket. It returns false if the connection has been closed.
func (k *loopConn) send() bool {
	next := k.output.next(k.session)
	if len(next) == 0 && k.waiting() == 0 || k.unwritable {
		return true
	}
	n, err := k.transmit(next)
	switch {
	case err == unix.EAGAIN:
		k.unwritable = true
	case err == unix.EINTR:
	case err != nil:
		k.close()
		return false
	}
	k.output.markSent(k.session, max(n, 0))
	k.loop.moved.Out += int64(max(n, 0))
	k.session.Counts.BytesOut.Add(int64(max(n, 0)))
	k.loop.moved.Writes++
	k.unwritable = k.unwritable || n < len(next) && err == nil
	if !k.unwritable {
		delete(k.loop.slow, k)
	}
	return true
}

// queueTurn asks for another turn, after the other connections' turns.
func (k *loopConn) queueTurn() {
	if !k.queued {
		k.queued = true
		k.loop.ready = append(k.loop.ready, k)
	}
}

// setEvents sets the events that epoll reports.
func (k *loopConn) setEvents(events uint32) {
	if k.events == events {
		return
	}
	k.events = events
	_ = unix.EpollCtl(k.loop.epoll, unix.EPOLL_CTL_MOD, k.fd, &unix.EpollEvent{Events: events, Fd: int32(k.fd)})
}

// close ends the session and closes the socket.
func (k *loopConn) close() {
	if !k.closed {
		k.endSession()
		k.loop.closeSocket(k.fd)
	}
}

// endSession ends the session and keeps the socket open.
func (k *loopConn) endSession() {
	k.closed = true
	k.session.Close() // before the client sees the end: its subscriptions must have ended by then
	if k.tls != nil {
		k.tls.closeNotify()
	}
	delete(k.loop.connByFD, k.fd)
	delete(k.loop.slow, k)
}

// lastReads bounds the reads from a connection that is about to be closed: a client that sends
// faster than the server reads must not delay the close.
const lastReads = 64
