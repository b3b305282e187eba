package server

import (
	"cellserver/internal/commands"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// link is a connection.
type link struct {
	loop    *loop
	fd      int
	session *commands.Session
	output  outputBuffer
	tls     *tlsConn    // nil for a plain socket
	events  uint32      // that epoll is asked for
	opened  atomic.Bool // it has its session, and the loop may hear of it
	woken   atomic.Bool
	gone    atomic.Bool // it was cut
	isReady bool
	blocked bool // the socket takes no more
	ended   bool // the client has nothing more to say
	reads   int  // while draining
	closed  bool
	local   string
	remote  string
}

// wake has the session resumed; cut ends its connection. Both may be called from any goroutine, at
// any time.
func (k *link) wake() {
	if k.woken.CompareAndSwap(false, true) && k.opened.Load() {
		k.loop.tell(message{link: k})
	}
}

func (k *link) cut() {
	if k.gone.Store(true); k.opened.Load() {
		k.loop.tell(message{link: k, cut: true})
	}
}

// enter puts a new connection into the loop.
func (k *link) enter() {
	l := k.loop
	if k.closed {
		return // it was cut before it got here
	}
	if k.gone.Load() { // before it was opened, even
		k.close()
		return
	}
	k.events = unix.EPOLLIN
	if err := l.add(k.fd, k.events); err != nil {
		l.log.Warn("cannot register a connection with epoll", "peer", k.remote, "error", err)
		k.close()
		return
	}
	l.links[k.fd] = k
	if l.draining || k.tls != nil {
		k.step()
	}
	if k.woken.Swap(false) && !k.closed {
		k.turn()
	}
}

// onEvents is what epoll reports. An error of the socket shows itself in reading or writing.
func (k *link) onEvents(events uint32) {
	if events&unix.EPOLLOUT != 0 {
		k.blocked = false
		k.step()
	}
	if k.tls != nil {
		k.tls.drained = false
	}
	if !k.closed && !k.ended && !k.busy() && events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		k.read()
	} else if !k.closed && (events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 || events&unix.EPOLLRDHUP != 0 &&
		k.session.Waits()) {
		k.close() // nothing will be read or written any more
	}
}

// busy says that the client has calls or replies waiting: then nothing more is read of it, and the
// network holds it up.
func (k *link) busy() bool { return k.isReady || k.session.Owing() || k.waiting() > 0 }

// waiting is the number of bytes that the socket has not taken.
func (k *link) waiting() int {
	waiting := k.output.waiting(k.session)
	if k.tls != nil {
		waiting += k.tls.unsent()
	}
	return waiting
}

// read gives the session what has arrived, and says how much that was.
func (k *link) read() int {
	n, err := k.receive()
	switch {
	case n > 0:
		k.loop.counted.In += int64(n)
		k.loop.counted.Reads++
		k.session.Feed(k.loop.buffer[:n])
		k.step()
	case err == unix.EAGAIN || err == unix.EINTR:
		if k.waiting() > 0 {
			k.step() // TLS has something to say of itself
		}
	case n == 0 && err == nil: // the client closed its direction; it may still want its replies, as nc does
		k.ended = true
		k.step()
	default:
		k.close()
	}
	return max(n, 0)
}

// readMore reads what TLS holds of what arrived, and says whether there was some.
func (k *link) readMore() bool {
	return k.tls != nil && k.tls.more && !k.closed && !k.ended && !k.busy() && k.read() > 0
}

// turn lets the session go on, unless replies are waiting: they go first.
func (k *link) turn() {
	if k.closed {
		return
	}
	if k.waiting() == 0 {
		k.session.Resume()
	}
	k.step()
}

// step sends a piece of what the session answers, and says how the connection goes on.
func (k *link) step() {
	if k.closed || k.cutOff(uncounted) || !k.send() {
		return
	}
	s, l := k.session, k.loop
	waiting, owing := k.waiting(), s.Owing()
	s.ShowUnsent(waiting)
	switch {
	case waiting > 0 && k.cutOff(0):
	case waiting > 0 && k.blocked && k.output.stuck(s.Closing(), l.instance.Now()):
		k.close()
	case waiting > 0 && k.blocked:
		l.slow[k] = struct{}{}
		k.watch(unix.EPOLLOUT)
	case waiting > 0 || s.More() || s.Called():
		k.getReady()
	case s.Closing() && l.linger(k):
	case s.Closing():
		k.discard()
		k.close()
	case owing && s.Waits():
		k.watch(unix.EPOLLRDHUP) // until it is woken, or the client goes
	case owing:
		k.watch(0) // until it is woken
	case k.ended:
		k.close()
	case l.draining:
		k.readRest()
	case k.tls != nil && k.tls.more:
		k.getReady()
	default:
		k.watch(unix.EPOLLIN)
	}
}

// cutOff ends the connection if more than so many bytes wait for the client to read them, and that
// is too much.
func (k *link) cutOff(least int) bool {
	waiting, l := k.waiting(), k.loop
	if waiting <= least || !k.output.tooMuch(k.session, l.instance.Now()) {
		return false
	}
	l.instance.CountOutputCut()
	l.log.Warn("disconnected a client that reads its replies too slowly", "peer", k.remote, "bytes", waiting)
	k.close()
	return true
}

// receive takes what has arrived; transmit gives the socket bytes.
func (k *link) receive() (int, error) {
	if k.tls != nil {
		return k.tls.receive(k.loop.buffer)
	}
	return read(k.fd, k.loop.buffer)
}

func (k *link) transmit(b []byte) (int, error) {
	if k.tls == nil {
		return write(k.fd, b)
	}
	waited := k.tls.unsent()
	n, err := k.tls.transmit(b)
	if waited > 0 && (n > 0 || k.tls.unsent() < waited) {
		k.session.Touch() // a client that reads is not idle
	}
	return n, err
}

// readRest answers what has arrived while the server stops, and ends the connection when there is
// no more.
func (k *link) readRest() {
	if k.tls != nil {
		k.tls.drained = false
	}
	if k.reads++; k.reads > lastReads || k.read() == 0 {
		k.close()
	}
}

// discard reads what nobody will answer: to close a socket with unread input makes the system throw
// away the last replies.
func (k *link) discard() {
	for range lastReads {
		if n, err := read(k.fd, k.loop.buffer); n <= 0 || err != nil {
			return
		}
	}
}

// send gives the socket one piece; false if the connection is gone.
func (k *link) send() bool {
	next := k.output.next(k.session)
	if len(next) == 0 && k.waiting() == 0 || k.blocked {
		return true
	}
	n, err := k.transmit(next)
	switch {
	case err == unix.EAGAIN:
		k.blocked = true
	case err == unix.EINTR:
	case err != nil:
		k.close()
		return false
	}
	k.output.wasSent(k.session, max(n, 0))
	k.loop.counted.Out += int64(max(n, 0))
	k.loop.counted.Writes++
	k.blocked = k.blocked || n < len(next) && err == nil
	if !k.blocked {
		delete(k.loop.slow, k)
	}
	return true
}

// getReady asks for another turn, after the others'.
func (k *link) getReady() {
	if !k.isReady {
		k.isReady = true
		k.loop.ready = append(k.loop.ready, k)
	}
}

// watch says what epoll is to report of the connection.
func (k *link) watch(events uint32) {
	if k.events == events {
		return
	}
	k.events = events
	_ = unix.EpollCtl(k.loop.epoll, unix.EPOLL_CTL_MOD, k.fd, &unix.EpollEvent{Events: events, Fd: int32(k.fd)})
}

// close ends the connection and its session.
func (k *link) close() {
	if !k.closed {
		k.leave()
		k.loop.free(k.fd)
	}
}

// leave ends the session, and keeps the socket.
func (k *link) leave() {
	k.closed = true
	k.session.Close() // before the client can see it: what it listened to, and the like, is over when its connection is
	if k.tls != nil {
		k.tls.goodbye()
	}
	delete(k.loop.links, k.fd)
	delete(k.loop.slow, k)
}

// lastReads is how much is read of a connection that is to end, in reads: a client that sends
// faster than we read does not put the end off.
const lastReads = 64
