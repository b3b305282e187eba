package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"
	"golang.org/x/sys/unix"

	"cellserver/internal/commands"
)

// loops are gnet's event loops, one a core. Connections are accepted by the standard library and handed to a loop for
// life: gnet's own acceptor ends the whole server when the process runs out of file descriptors.
type loops struct {
	gnet.BuiltinEventEngine
	instance *commands.Instance
	output   OutputLimit
	log      *slog.Logger
	client   *gnet.Client // gnet's word for loops without a listener of their own
	draining atomic.Bool
	open     sync.WaitGroup // a count of the connections
}

// readBytes is how much is read of a connection before the others have their turn; Redis reads as much.
const readBytes = 16 << 10

func startLoops(instance *commands.Instance, o Options) (*loops, error) {
	l := &loops{instance: instance, output: o.Output, log: o.Log}
	client, err := gnet.NewClient(l,
		gnet.WithMulticore(true), // as many as GOMAXPROCS, unless told
		gnet.WithNumEventLoop(o.IOThreads),
		gnet.WithReadBufferCap(readBytes),
		gnet.WithTCPNoDelay(gnet.TCPNoDelay),
		gnet.WithLogger(quiet{o.Log}),
	)
	if err != nil {
		return nil, err
	}
	l.client = client
	return l, client.Start()
}

// link is a connection: what OnOpen makes of the addresses that accept knew.
type link struct {
	remote, local string
	session       *commands.Session
	outlet        outlet
	pause         time.Duration // until it is looked again whether a slow reader has read
	looking       atomic.Bool   // somebody will wake us for that

	mu     sync.Mutex // held for waking against OnClose: a closed connection's loop may be gone
	waker  func()     // nil while there is nobody to wake
	cutter func()
}

func (l *loops) enroll(conn net.Conn) error {
	_, err := l.client.EnrollContext(conn, &link{
		remote: address(conn.RemoteAddr(), conn), local: address(conn.LocalAddr(), conn), outlet: outlet{limit: l.output},
	})
	return err
}

// OnOpen starts a session.
func (l *loops) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	k := c.Context().(*link)
	l.open.Add(1)
	k.servedBy(func() { _ = c.Wake(nil) }, func() { _ = c.Close() }) // they fail only when the loop is gone, and we with it
	k.session = l.instance.Open(commands.Peer{Remote: k.remote, Local: k.local, FD: c.Fd(), Wake: k.wake, Cut: k.cut})
	return nil, gnet.None
}

// OnTraffic feeds the session what has arrived, and sends what it answers, in one write if it is not much. gnet calls it
// after a wake too, without input.
func (l *loops) OnTraffic(c gnet.Conn) gnet.Action {
	k := c.Context().(*link)
	input, _ := c.Next(-1)
	k.feed(c, input)
	if l.draining.Load() {
		k.feedRest(c)
	}
	if next := k.outlet.next(k.session); len(next) > 0 && c.OutboundBuffered() == 0 {
		if _, err := c.Write(next); err != nil {
			return gnet.None // gnet has closed the connection
		}
		k.outlet.took(k.session, len(next))
	}
	return l.goOn(k, c)
}

// feed gives the session its input. A client that has replies waiting is answered nothing new: what it sends is stored.
func (k *link) feed(c gnet.Conn, input []byte) {
	switch {
	case k.session.Closing():
	case k.outlet.waiting(k.session)+c.OutboundBuffered() > 0:
		k.session.Store(input)
	case len(input) > 0:
		k.session.Feed(input)
	default:
		k.session.Resume()
	}
}

// feedRest reads what has arrived and gnet has not read, before the connection is ended.
func (k *link) feedRest(c gnet.Conn) {
	buffer := make([]byte, readBytes)
	for range 64 { // a client that sends faster than we read does not put the end off
		n, err := unix.Read(c.Fd(), buffer)
		if n <= 0 || err != nil {
			return
		}
		k.feed(c, buffer[:n])
	}
}

// goOn says how a connection goes on after a turn.
func (l *loops) goOn(k *link, c gnet.Conn) gnet.Action {
	unsent := k.outlet.waiting(k.session)
	waiting := unsent + c.OutboundBuffered()
	switch {
	case k.outlet.tooMuch(waiting, l.instance.Now()):
		l.instance.CountOutputCut()
		l.log.Warn("a client reads its replies too slowly, and is cut off", "peer", k.remote, "bytes", waiting)
		return gnet.Close
	case c.OutboundBuffered() > 0 && k.outlet.stuck(k.session.Closing(), l.instance.Now()):
		return gnet.Close
	case c.OutboundBuffered() > 0:
		k.lookAgain()
	case unsent > 0 || k.session.More():
		k.pause = 0
		k.wake() // after the others' turn
	case k.session.Closing() || l.draining.Load() && !k.session.Owing():
		return gnet.Close
	default:
		k.pause = 0
	}
	return gnet.None
}

// A slow reader is looked at after longestPause at the latest: gnet tells nobody when its buffer runs empty.
const (
	shortestPause = time.Millisecond
	longestPause  = time.Second
)

func (k *link) lookAgain() {
	if !k.looking.CompareAndSwap(false, true) {
		return
	}
	k.pause = min(max(2*k.pause, shortestPause), longestPause)
	time.AfterFunc(k.pause, func() {
		k.looking.Store(false)
		k.wake()
	})
}

// OnClose ends the session, unless it owes a reply to a client that only closed its own direction, as nc does. gnet closes the
// whole connection when it reads the end of the input, so such a connection goes on with a goroutine of its own.
func (l *loops) OnClose(c gnet.Conn, err error) gnet.Action {
	defer l.open.Done()
	k := c.Context().(*link)
	k.servedBy(nil, nil)
	owing := k.session.Owing() || k.outlet.waiting(k.session) > 0
	if errors.Is(err, io.EOF) && owing && c.OutboundBuffered() == 0 {
		if conn, err := duplicate(c); err == nil {
			l.open.Add(1)
			go k.linger(conn, l)
			return gnet.None
		}
	}
	k.session.Close()
	return gnet.None
}

func duplicate(c gnet.Conn) (net.Conn, error) {
	fd, err := c.Dup()
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "half-closed connection")
	defer file.Close() // FileConn duplicates it once more
	return net.FileConn(file)
}

// linger serves a half-closed connection to its end.
func (k *link) linger(conn net.Conn, l *loops) {
	defer l.open.Done()
	t := &thread{conn: conn, session: k.session, outlet: k.outlet, instance: l.instance}
	k.servedBy(t.wake, t.cut)
	defer k.servedBy(nil, nil)
	t.finish()
}

// wake has the session resumed; cut ends its connection. Both may be called from any goroutine.
func (k *link) wake() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waker != nil {
		k.waker()
	}
}

func (k *link) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cutter != nil {
		k.cutter()
	}
}

func (k *link) servedBy(waker, cutter func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waker, k.cutter = waker, cutter
}

// drain ends the connections, each once it has its replies, and then the loops.
func (l *loops) drain(ctx context.Context) error {
	l.draining.Store(true)
	l.instance.WakeAll()
	err := waitFor(ctx, &l.open)
	return errors.Join(err, l.client.Stop())
}

// waitFor waits for a group until ctx is done.
func waitFor(ctx context.Context, group *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// quiet passes gnet's log on. What it reports of single connections, resets and the like, is no news to anybody who runs a
// server, so all of it but its errors goes to the debug level.
type quiet struct{ log *slog.Logger }

var _ logging.Logger = quiet{}

func (q quiet) Debugf(format string, args ...any) { q.log.Debug(fmt.Sprintf(format, args...)) }
func (q quiet) Infof(format string, args ...any)  { q.log.Debug(fmt.Sprintf(format, args...)) }
func (q quiet) Warnf(format string, args ...any)  { q.log.Debug(fmt.Sprintf(format, args...)) }
func (q quiet) Errorf(format string, args ...any) { q.log.Error(fmt.Sprintf(format, args...)) }
func (q quiet) Fatalf(format string, args ...any) { q.log.Error(fmt.Sprintf(format, args...)) }
