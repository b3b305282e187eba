package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"cellserver/internal/client"
	"cellserver/internal/meter"
	"cellserver/internal/session"
	"cellserver/internal/stats"
)

// DefaultTransport is the default of the option transport.
const DefaultTransport = EventLoop

// loopTransport serves connections with event loops over epoll, by default one per core. The
// standard library accepts the connections; each belongs to one loop until it ends.
type loopTransport struct {
	instance *session.Instance
	list     []*loop
	next     atomic.Uint64 // index of the loop of the next connection, in turn
	conns    sync.WaitGroup
	running  sync.WaitGroup
}

// loop is an event loop: a goroutine that waits for events of its connections, and gives each
// connection that has something to do one turn.
type loop struct {
	instance *session.Instance
	log      *slog.Logger
	output   *atomic.Pointer[classLimits]
	turns    *meter.MaxCPUTime
	conns    *sync.WaitGroup

	lingering      *lingering // shared by all loops
	lingeringConns map[int]*lingeringConn

	epoll, wakeFD int // descriptors of the epoll instance, and of an eventfd that interrupts its wait
	// epollWait waits for events. Tests replace it.
	epollWait func(epoll int, events []unix.EpollEvent, ms int) (int, error)
	replaced  bool // the epoll instance has not worked yet since it was replaced
	buffer    []byte
	cipher    []byte // buffer for encrypted output
	connByFD  map[int]*loopConn
	ready     []*loopConn            // connections that need another turn
	slow      map[*loopConn]struct{} // connections whose socket buffers are full
	checked   int64                  // instant, nanoseconds, of the last check of slow
	moved     stats.IO               // since the last update of traffic
	traffic   *stats.Traffic
	draining  bool

	batch []message // messages that are being handled

	mu       sync.Mutex
	messages []message // from other goroutines, not in batch yet
	signaled bool
	ended    bool // messages are not handled any more
}

// message is a request of another goroutine to a loop. A message with a conn, and without a flag,
// resumes the conn. A message without a conn starts to drain the loop, stops the loop or, with
// taken, asks the loop to report a turn.
type message struct {
	conn             *loopConn
	enter, cut, stop bool
	taken            chan<- struct{} // has room for one value per loop
}

const (
	// loopConnBytes estimates the memory of a loopConn, in bytes.
	loopConnBytes = 1 << 10
	// maxEvents is the number of events that one wait may report.
	maxEvents = 128
	// maxMessages and maxTurns are the numbers of messages handled, and of further turns given,
	// before the loop polls epoll again: when thousands of clients are notified of the change of a
	// key, a client that sends a call waits for few of them.
	maxMessages = 64
	maxTurns    = 16
	// yieldEvery is the number of rounds after which a busy loop lets other goroutines run. On one
	// core, the scheduler would preempt the loop only after 10 ms.
	yieldEvery = 16
	// checkInterval is the interval at which clients that do not read are checked.
	checkInterval = time.Second
)

// startLoops starts count event loops, or one per core that the process may use if count is 0.
func (s *Server) startLoops(count int, turns *meter.MaxCPUTime) (transport, error) {
	if count == 0 {
		count = runtime.GOMAXPROCS(0)
	}
	ls, lingering := &loopTransport{instance: s.instance}, new(lingering)
	for range count {
		l := ls.newLoop(s, turns, lingering)
		if err := l.prepare(); err != nil {
			return nil, err
		}
		ls.list = append(ls.list, l)
		ls.running.Go(l.run)
	}
	return ls, nil
}

func (ls *loopTransport) newLoop(s *Server, turns *meter.MaxCPUTime, lingering *lingering) *loop {
	return &loop{
		instance: s.instance, log: s.log, output: &s.output, turns: turns, conns: &ls.conns,
		buffer: make([]byte, readBytes), traffic: s.instance.CountTraffic(),
		connByFD: make(map[int]*loopConn), slow: make(map[*loopConn]struct{}),
		lingering: lingering, lingeringConns: make(map[int]*lingeringConn), epollWait: epollWait,
	}
}

func (l *loop) prepare() (err error) {
	if l.wakeFD, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return err
	}
	return l.openEpoll()
}

// pick returns the loop of the next connection: each loop in turn, except for loops that have
// ended. It returns nil if all loops have ended.
func (ls *loopTransport) pick() *loop {
	for range ls.list {
		if l := ls.list[ls.next.Add(1)%uint64(len(ls.list))]; !l.hasEnded() {
			return l
		}
	}
	return nil
}

func (l *loop) hasEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// attach gives a connection to a loop. The loop uses a duplicate of the descriptor, because the
// net.Conn keeps its own.
func (ls *loopTransport) attach(conn net.Conn) error {
	socket := socketOf(conn)
	raw := rawConn(socket)
	if raw == nil {
		return errors.New("the connection has no descriptor")
	}
	l := ls.pick()
	if l == nil {
		return errNoLoop
	}
	fd, failed := -1, error(nil)
	err := raw.Control(func(n uintptr) { fd, failed = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	k := &loopConn{loop: l, fd: fd, output: outputBuffer{limits: l.output},
		remote: displayAddress(conn.RemoteAddr(), conn),
		local:  displayAddress(conn.LocalAddr(), conn)}
	k.tls = l.useTLS(conn, fd)
	ls.conns.Add(1)
	kept := loopConnBytes
	if k.tls != nil {
		kept += tlsBytes
	}
	k.session = ls.instance.Open(client.Peer{Remote: k.remote, Local: k.local, FD: fd, TransportBytes: kept,
		CertificateUser: certificateUser(conn), Wake: k.wake, Cut: k.cut})
	k.opened.Store(true)
	_ = socket.Close() // before the loop registers fd: an open duplicate would keep the connection in epoll
	if !l.post(message{conn: k, enter: true}) {
		k.session.Close()
		l.closeSocket(fd)
		return errNoLoop
	}
	return nil
}

var errNoLoop = errors.New("the event loop has ended")

// drain makes all loops answer the calls that have arrived and close each connection when its
// replies have been sent, or when ctx is done. Then it stops the loops.
func (ls *loopTransport) drain(ctx context.Context) error {
	for _, l := range ls.list {
		l.post(message{})
	}
	err := waitFor(ctx, &ls.conns)
	for _, l := range ls.list {
		l.post(message{stop: true})
	}
	ls.running.Wait()
	return err
}

// beat asks each loop for a turn, and waits for all of them. A loop that has ended has no clients, and is
// not asked.
func (ls *loopTransport) beat(ctx context.Context) error {
	turns, asked := make(chan struct{}, len(ls.list)), 0
	for _, l := range ls.list {
		if l.post(message{taken: turns}) {
			asked++
		}
	}
	for range asked {
		select {
		case <-turns:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// post queues a message for the loop, and wakes the loop unless an earlier message has woken it. It
// returns false if the loop has ended.
func (l *loop) post(m message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false // the number of wakeFD may belong to another file by now
	}
	l.messages = append(l.messages, m)
	if !l.signaled {
		l.signaled = true
		// an error means that the loop is being woken already
		_, _ = unix.Write(l.wakeFD, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
	return true
}

// run waits for events and handles them until a message stops it. Before each wait that may block,
// run polls once: on a busy server, events have arrived by then, and blocking is expensive.
func (l *loop) run() {
	events := make([]unix.EpollEvent, maxEvents)
	for wait, round := -1, 0; ; round++ {
		n, err := l.epollWait(l.epoll, events, wait)
		switch {
		case n >= 0:
			l.replaced = false
		case err != unix.EINTR && !l.replaceEpoll(err):
			return
		}
		for _, event := range events[:max(n, 0)] {
			if k := l.connByFD[int(event.Fd)]; k != nil {
				began := l.turns.Start()
				k.onEvents(event.Events)
				l.turns.Stop(began)
				l.instance.Yield()
			} else if p := l.lingeringConns[int(event.Fd)]; p != nil {
				l.discardLingering(int(event.Fd), p)
			}
		}
		if !l.handleMessages() {
			l.end()
			return
		}
		l.takeTurns()
		l.checkSlow()
		l.traffic.Add(&l.moved)
		switch {
		case n > 0 || len(l.ready) > 0 || len(l.batch) > 0:
			wait = 0
		case len(l.slow)+len(l.lingeringConns) > 0:
			wait = int(checkInterval / time.Millisecond)
		default:
			wait = -1
		}
		if n == 0 || round%yieldEvery == 0 {
			runtime.Gosched()
		}
	}
}

// handleMessages handles up to maxMessages messages. It returns false if the loop is to stop.
func (l *loop) handleMessages() bool {
	if len(l.batch) == 0 {
		l.fetchMessages()
	}
	n := min(len(l.batch), maxMessages)
	some := l.batch[:n]
	l.batch = l.batch[n:]
	for _, m := range some {
		began := l.turns.Start()
		switch {
		case m.stop:
			return false
		case m.taken != nil:
			m.taken <- struct{}{}
		case m.conn == nil:
			l.drain()
		case m.cut:
			m.conn.close()
		case m.enter:
			m.conn.join()
		default:
			m.conn.woken.Store(false)
			m.conn.resume()
		}
		l.turns.Stop(began)
	}
	return true
}

func (l *loop) fetchMessages() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batch, l.messages = l.messages, nil
	if l.signaled {
		l.signaled = false
		_, _ = unix.Read(l.wakeFD, make([]byte, 8))
	}
}

// takeTurns gives another turn to up to maxTurns of the connections in ready, in their order.
func (l *loop) takeTurns() {
	n := min(len(l.ready), maxTurns)
	ready := l.ready[:n]
	if l.ready = l.ready[n:]; len(l.ready) == 0 {
		l.ready = nil
	}
	for _, k := range ready {
		k.queued = false
		began := l.turns.Start()
		if !k.readMore() {
			k.resume()
		}
		l.turns.Stop(began)
		l.instance.Yield()
	}
}

// checkSlow closes connections whose clients have not read their replies in time.
func (l *loop) checkSlow() {
	if len(l.slow)+len(l.lingeringConns) == 0 {
		return
	}
	now := l.instance.Now()
	if time.Duration(now-l.checked) < checkInterval {
		return
	}
	l.checked = now
	for k := range l.slow {
		k.step()
	}
	l.checkLingering(now)
}

// drain makes the connections answer the calls that have arrived, and then read nothing more.
func (l *loop) drain() {
	l.draining = true
	l.endAllLingering()
	for _, k := range l.connByFD {
		k.step()
	}
}

// end closes all connections, including connections that are only in messages, and the descriptors of the
// loop.
func (l *loop) end() {
	l.mu.Lock()
	l.ended = true
	mail := append(l.batch, l.messages...)
	l.batch, l.messages = nil, nil
	l.mu.Unlock()
	for _, m := range mail {
		switch {
		case m.enter:
			m.conn.close()
		case m.taken != nil:
			m.taken <- struct{}{} // nobody may wait for a loop that has ended
		}
	}
	for _, k := range l.connByFD {
		k.close()
	}
	l.endAllLingering()
	l.closeEpoll()
	unix.Close(l.wakeFD)
}

// closeSocket closes a socket, which removes it from epoll.
func (l *loop) closeSocket(fd int) {
	unix.Close(fd)
	l.conns.Done()
}
