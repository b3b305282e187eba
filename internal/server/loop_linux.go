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
	"cellserver/internal/commands"
	"cellserver/internal/meter"
	"cellserver/internal/stats"
)

// Fastest is the transport where none is asked for.
const Fastest = EventLoop

// loops are event loops over epoll, one a core. Connections are accepted by the standard library and handed to a loop for
// life.
type loops struct {
	instance *commands.Instance
	all      []*loop
	next     atomic.Uint64 // loop that the next connection goes to, round and round
	open     sync.WaitGroup
	running  sync.WaitGroup
}

// loop is one of them: a goroutine that waits for its connections, and gives each that has something to do one turn.
type loop struct {
	instance *commands.Instance
	log      *slog.Logger
	output   *atomic.Pointer[outputs]
	turns    *meter.Longest
	open     *sync.WaitGroup

	lingering *lingering // of all loops
	partings  map[int]*parting

	epoll, bell int // descriptors: of the epoll, and of an eventfd that interrupts its wait
	// wait is epollWait; another in tests.
	wait     func(epoll int, events []unix.EpollEvent, ms int) (int, error)
	renewed  bool // the epoll has not worked since it was made
	buffer   []byte
	cipher   []byte // for what is sealed
	links    map[int]*link
	ready    []*link            // that did not come to an end in their turn
	slow     map[*link]struct{} // whose sockets take no more
	looked   int64              // instant, nanoseconds, when they were looked at last
	counted  stats.Moved        // and not told yet
	traffic  *stats.Traffic
	draining bool

	begun []message // of the mail, that is being read

	mu    sync.Mutex
	mail  []message // from other goroutines
	rung  bool
	ended bool // nobody reads it any more
}

// message is what other goroutines want of a loop. A link without more is to be resumed.
type message struct {
	link             *link
	enter, cut, stop bool
}

// link is a connection.
type link struct {
	loop    *loop
	fd      int
	session *commands.Session
	outlet  outlet
	tls     *sealed     // nil for a plain socket
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

const (
	// linkBytes is about what a connection takes of a loop's memory.
	linkBytes = 1 << 10
	// eventsAtOnce is how many connections one wait may report.
	eventsAtOnce = 128
	// mailAtOnce and turnsAtOnce are how many messages are read, and how many connections that are
	// not done have another turn, before the others are asked again: when a key changes that
	// thousands of clients are told of, a client that calls waits for few of them.
	mailAtOnce  = 64
	turnsAtOnce = 16
	// yieldEvery is after how many waits a loop that always has something to do lets other goroutines run: on one core the
	// scheduler would step in for them after 10 ms only.
	yieldEvery = 16
	// lookEvery is how often clients that do not read are looked at.
	lookEvery = time.Second
)

// startLoops starts a number of loops, or if that is 0 one for each core that the process may use.
func (s *Server) startLoops(count int, turns *meter.Longest) (transport, error) {
	if count == 0 {
		count = runtime.GOMAXPROCS(0)
	}
	ls, lingering := &loops{instance: s.instance}, new(lingering)
	for range count {
		l := ls.newLoop(s, turns, lingering)
		if err := l.prepare(); err != nil {
			return nil, err
		}
		ls.all = append(ls.all, l)
		ls.running.Go(l.run)
	}
	return ls, nil
}

func (ls *loops) newLoop(s *Server, turns *meter.Longest, lingering *lingering) *loop {
	return &loop{
		instance: s.instance, log: s.log, output: &s.output, turns: turns, open: &ls.open,
		buffer: make([]byte, readBytes), traffic: s.instance.CountTraffic(),
		links: make(map[int]*link), slow: make(map[*link]struct{}),
		lingering: lingering, partings: make(map[int]*parting), wait: epollWait,
	}
}

func (l *loop) prepare() (err error) {
	if l.bell, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return err
	}
	return l.openEpoll()
}

// pick says which loop the next connection goes to: round and round, past loops that have ended.
func (ls *loops) pick() *loop {
	for range ls.all {
		if l := ls.all[ls.next.Add(1)%uint64(len(ls.all))]; !l.hasEnded() {
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

// enroll takes the descriptor of a connection over: a copy of it, because the standard library keeps its own.
func (ls *loops) enroll(conn net.Conn) error {
	socket := below(conn)
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
	k := &link{loop: l, fd: fd, outlet: outlet{limits: l.output}, remote: address(conn.RemoteAddr(), conn), local: address(conn.LocalAddr(), conn)}
	k.tls = l.seal(conn, fd)
	ls.open.Add(1)
	kept := linkBytes
	if k.tls != nil {
		kept += tlsBytes
	}
	k.session = ls.instance.Open(client.Peer{Remote: k.remote, Local: k.local, FD: fd, Kept: kept, Wake: k.wake, Cut: k.cut})
	k.opened.Store(true)
	_ = socket.Close() // before the loop knows it: then no other descriptor keeps the connection in the epoll
	if !l.tell(message{link: k, enter: true}) {
		k.session.Close()
		l.free(fd)
		return errNoLoop
	}
	return nil
}

var errNoLoop = errors.New("its event loop has ended")

// drain has every loop answer what has arrived and end its connections, each once it has its replies; then it ends the loops.
func (ls *loops) drain(ctx context.Context) error {
	for _, l := range ls.all {
		l.tell(message{})
	}
	err := waitFor(ctx, &ls.open)
	for _, l := range ls.all {
		l.tell(message{stop: true})
	}
	ls.running.Wait()
	return err
}

// tell leaves a message for the loop, and rings unless somebody has; false if the loop has ended.
func (l *loop) tell(m message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false // the bell's number may be somebody else's by now
	}
	l.mail = append(l.mail, m)
	if !l.rung {
		l.rung = true
		_, _ = unix.Write(l.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // it fails only when the bell rings already
	}
	return true
}

// wake has the session resumed; cut ends its connection. Both may be called from any goroutine, at any time.
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

// run waits and serves until it is told to stop. It asks once more without waiting before it waits: in a busy server there is
// something by then, and to wait is dear.
func (l *loop) run() {
	events := make([]unix.EpollEvent, eventsAtOnce)
	for wait, round := -1, 0; ; round++ {
		n, err := l.wait(l.epoll, events, wait)
		switch {
		case n >= 0:
			l.renewed = false
		case err != unix.EINTR && !l.recover(err):
			return
		}
		for _, event := range events[:max(n, 0)] {
			if k := l.links[int(event.Fd)]; k != nil {
				began := l.turns.Start()
				k.happened(event.Events)
				l.turns.Stop(began)
				l.instance.Yield()
			} else if p := l.partings[int(event.Fd)]; p != nil {
				l.throwAway(int(event.Fd), p)
			}
		}
		if !l.readMail() {
			l.end()
			return
		}
		l.takeTurns()
		l.lookAtSlow()
		l.traffic.Add(&l.counted)
		switch {
		case n > 0 || len(l.ready) > 0 || len(l.begun) > 0:
			wait = 0
		case len(l.slow)+len(l.partings) > 0:
			wait = int(lookEvery / time.Millisecond)
		default:
			wait = -1
		}
		if n == 0 || round%yieldEvery == 0 {
			runtime.Gosched()
		}
	}
}

// readMail does what others asked for, or a part of it; false when that is to stop.
func (l *loop) readMail() bool {
	if len(l.begun) == 0 {
		l.fetchMail()
	}
	n := min(len(l.begun), mailAtOnce)
	some := l.begun[:n]
	l.begun = l.begun[n:]
	for _, m := range some {
		began := l.turns.Start()
		switch {
		case m.stop:
			return false
		case m.link == nil:
			l.drain()
		case m.cut:
			m.link.close()
		case m.enter:
			m.link.enter()
		default:
			m.link.woken.Store(false)
			m.link.turn()
		}
		l.turns.Stop(began)
	}
	return true
}

func (l *loop) fetchMail() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun, l.mail = l.mail, nil
	if l.rung {
		l.rung = false
		_, _ = unix.Read(l.bell, make([]byte, 8))
	}
}

// takeTurns gives some connections that were not done one more turn, those first that have waited
// longest.
func (l *loop) takeTurns() {
	n := min(len(l.ready), turnsAtOnce)
	ready := l.ready[:n]
	if l.ready = l.ready[n:]; len(l.ready) == 0 {
		l.ready = nil
	}
	for _, k := range ready {
		k.isReady = false
		began := l.turns.Start()
		if !k.readMore() {
			k.turn()
		}
		l.turns.Stop(began)
		l.instance.Yield()
	}
}

// lookAtSlow looks whether clients that do not read have had time enough.
func (l *loop) lookAtSlow() {
	if len(l.slow)+len(l.partings) == 0 {
		return
	}
	now := l.instance.Now()
	if time.Duration(now-l.looked) < lookEvery {
		return
	}
	l.looked = now
	for k := range l.slow {
		k.goOn()
	}
	l.lookAtPartings(now)
}

// drain answers what has arrived, and lets nobody say more.
func (l *loop) drain() {
	l.draining = true
	l.partAll()
	for _, k := range l.links {
		k.goOn()
	}
}

// end closes everything that is left.
func (l *loop) end() {
	l.mu.Lock()
	l.ended = true
	mail := append(l.begun, l.mail...)
	l.begun, l.mail = nil, nil
	l.mu.Unlock()
	for _, m := range mail {
		if m.enter {
			m.link.close()
		}
	}
	for _, k := range l.links {
		k.close()
	}
	l.partAll()
	l.closeEpoll()
	unix.Close(l.bell)
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
		k.goOn()
	}
	if k.woken.Swap(false) && !k.closed {
		k.turn()
	}
}

// happened is what epoll reports. An error of the socket shows itself in reading or writing.
func (k *link) happened(events uint32) {
	if events&unix.EPOLLOUT != 0 {
		k.blocked = false
		k.goOn()
	}
	if k.tls != nil {
		k.tls.drained = false
	}
	if !k.closed && !k.ended && !k.busy() && events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		k.read()
	} else if !k.closed && (events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 || events&unix.EPOLLRDHUP != 0 && k.session.Waits()) {
		k.close() // nothing will be read or written any more
	}
}

// busy says that the client has calls or replies waiting: then nothing more is read of it, and the network holds it up.
func (k *link) busy() bool { return k.isReady || k.session.Owing() || k.waiting() > 0 }

// waiting is the number of bytes that the socket has not taken.
func (k *link) waiting() int {
	waiting := k.outlet.waiting(k.session)
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
		k.goOn()
	case err == unix.EAGAIN || err == unix.EINTR:
		if k.waiting() > 0 {
			k.goOn() // TLS has something to say of itself
		}
	case n == 0 && err == nil: // the client closed its direction; it may still want its replies, as nc does
		k.ended = true
		k.goOn()
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
	k.goOn()
}

// goOn sends a piece of what the session answers, and says how the connection goes on.
func (k *link) goOn() {
	if k.closed || k.cutOff(uncounted) || !k.send() {
		return
	}
	s, l := k.session, k.loop
	waiting, owing := k.waiting(), s.Owing()
	s.ShowUnsent(waiting)
	switch {
	case waiting > 0 && k.cutOff(0):
	case waiting > 0 && k.blocked && k.outlet.stuck(s.Closing(), l.instance.Now()):
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

// cutOff ends the connection if more than so many bytes wait for the client to read them, and that is too much.
func (k *link) cutOff(least int) bool {
	waiting, l := k.waiting(), k.loop
	if waiting <= least || !k.outlet.tooMuch(k.session, l.instance.Now()) {
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

// lastReads is how much is read of a connection that is to end, in reads: a client that sends faster than we read does not
// put the end off.
const lastReads = 64

// readRest answers what has arrived while the server stops, and ends the connection when there is no more.
func (k *link) readRest() {
	if k.tls != nil {
		k.tls.drained = false
	}
	if k.reads++; k.reads > lastReads || k.read() == 0 {
		k.close()
	}
}

// discard reads what nobody will answer: to close a socket with unread input makes the system throw away the last replies.
func (k *link) discard() {
	for range lastReads {
		if n, err := read(k.fd, k.loop.buffer); n <= 0 || err != nil {
			return
		}
	}
}

// send gives the socket one piece; false if the connection is gone.
func (k *link) send() bool {
	next := k.outlet.next(k.session)
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
	k.outlet.took(k.session, max(n, 0))
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

// free closes a socket, which takes it out of the epoll.
func (l *loop) free(fd int) {
	unix.Close(fd)
	l.open.Done()
}
