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

// DefaultTransport is the transport where none is asked for.
const DefaultTransport = EventLoop

// loops are event loops over epoll, one a core. Connections are accepted by the standard library
// and handed to a loop for life.
type loops struct {
	instance *commands.Instance
	all      []*loop
	next     atomic.Uint64 // loop that the next connection goes to, round and round
	open     sync.WaitGroup
	running  sync.WaitGroup
}

// loop is one of them: a goroutine that waits for its connections, and gives each that has
// something to do one turn.
type loop struct {
	instance *commands.Instance
	log      *slog.Logger
	output   *atomic.Pointer[outputs]
	turns    *meter.MaxCPUTime
	open     *sync.WaitGroup

	lingering *lingering // of all loops
	partings  map[int]*parting

	epoll, wakeFD int // descriptors: of the epoll, and of an eventfd that interrupts its wait
	// wait is epollWait; another in tests.
	wait     func(epoll int, events []unix.EpollEvent, ms int) (int, error)
	renewed  bool // the epoll has not worked since it was made
	buffer   []byte
	cipher   []byte // for what is encrypted
	links    map[int]*link
	ready    []*link            // that did not come to an end in their turn
	slow     map[*link]struct{} // whose sockets take no more
	looked   int64              // instant, nanoseconds, when they were looked at last
	counted  stats.IO           // and not told yet
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
	// yieldEvery is after how many waits a loop that always has something to do lets other
	// goroutines run: on one core the scheduler would step in for them after 10 ms only.
	yieldEvery = 16
	// lookEvery is how often clients that do not read are looked at.
	lookEvery = time.Second
)

// startLoops starts a number of loops, or if that is 0 one for each core that the process may use.
func (s *Server) startLoops(count int, turns *meter.MaxCPUTime) (transport, error) {
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

func (ls *loops) newLoop(s *Server, turns *meter.MaxCPUTime, lingering *lingering) *loop {
	return &loop{
		instance: s.instance, log: s.log, output: &s.output, turns: turns, open: &ls.open,
		buffer: make([]byte, readBytes), traffic: s.instance.CountTraffic(),
		links: make(map[int]*link), slow: make(map[*link]struct{}),
		lingering: lingering, partings: make(map[int]*parting), wait: epollWait,
	}
}

func (l *loop) prepare() (err error) {
	if l.wakeFD, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
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

// enroll takes the descriptor of a connection over: a copy of it, because the standard library
// keeps its own.
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
	k := &link{loop: l, fd: fd, output: outputBuffer{limits: l.output}, remote: address(conn.RemoteAddr(), conn),
		local: address(conn.LocalAddr(), conn)}
	k.tls = l.seal(conn, fd)
	ls.open.Add(1)
	kept := linkBytes
	if k.tls != nil {
		kept += tlsBytes
	}
	k.session = ls.instance.Open(client.Peer{Remote: k.remote, Local: k.local, FD: fd, TransportBytes: kept, Wake: k.wake,
		Cut: k.cut})
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

// drain has every loop answer what has arrived and end its connections, each once it has its
// replies; then it ends the loops.
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
		return false // the descriptor's number may be another's by now
	}
	l.mail = append(l.mail, m)
	if !l.rung {
		l.rung = true
		_, _ = unix.Write(l.wakeFD, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // it fails only if the loop is woken already
	}
	return true
}

// run waits and serves until it is told to stop. It asks once more without waiting before it waits:
// in a busy server there is something by then, and to wait is dear.
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
				k.onEvents(event.Events)
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
		_, _ = unix.Read(l.wakeFD, make([]byte, 8))
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
		k.step()
	}
	l.lookAtPartings(now)
}

// drain answers what has arrived, and lets nobody say more.
func (l *loop) drain() {
	l.draining = true
	l.partAll()
	for _, k := range l.links {
		k.step()
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
	unix.Close(l.wakeFD)
}

// free closes a socket, which takes it out of the epoll.
func (l *loop) free(fd int) {
	unix.Close(fd)
	l.open.Done()
}
