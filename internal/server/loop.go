package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"

	"cellserver/internal/commands"
)

// loops are gnet's event loops, one a core. Connections are accepted by the standard library and handed to a loop for
// life: gnet's own acceptor ends the whole server when the process runs out of file descriptors.
type loops struct {
	gnet.BuiltinEventEngine
	instance *commands.Instance
	log      *slog.Logger
	client   *gnet.Client // gnet's word for loops without a listener of their own
}

func startLoops(instance *commands.Instance, o Options) (*loops, error) {
	l := &loops{instance: instance, log: o.Log}
	client, err := gnet.NewClient(l,
		gnet.WithMulticore(true), // as many as GOMAXPROCS, unless told
		gnet.WithNumEventLoop(o.IOThreads),
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

	mu    sync.Mutex // held for waking against OnClose: a closed connection's loop may be gone
	waker func()     // nil while there is nobody to wake
}

func (l *loops) enroll(conn net.Conn) error {
	_, err := l.client.EnrollContext(conn, &link{remote: address(conn.RemoteAddr(), conn), local: address(conn.LocalAddr(), conn)})
	return err
}

// address is how CLIENT LIST shows one: a Unix socket's peers have no names, so Redis shows the path of the socket.
func address(a net.Addr, conn net.Conn) string {
	if a.Network() == "unix" {
		return conn.LocalAddr().String() + ":0"
	}
	return a.String()
}

// OnOpen starts a session.
func (l *loops) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	k := c.Context().(*link)
	k.wokenBy(func() { _ = c.Wake(nil) }) // it fails only when the loop is gone, and the connection with it
	k.session = l.instance.Open(commands.Peer{Remote: k.remote, Local: k.local, FD: c.Fd(), Wake: k.wake})
	return nil, gnet.None
}

// OnTraffic feeds the session what has arrived, and sends what it answers in one write. gnet calls it after a wake too.
func (l *loops) OnTraffic(c gnet.Conn) gnet.Action {
	k := c.Context().(*link)
	input, _ := c.Next(-1)
	switch {
	case k.session.Closing(): // only waiting for the last bytes to leave
	case len(input) == 0:
		k.session.Resume()
	default:
		k.session.Feed(input)
	}
	if out := k.session.Output(); len(out) > 0 {
		if _, err := c.Write(out); err != nil {
			return gnet.None // gnet has closed the connection
		}
		k.session.Sent()
	}
	if !k.session.Closing() {
		return gnet.None
	}
	if c.OutboundBuffered() == 0 {
		return gnet.Close
	}
	time.AfterFunc(drainPause, k.wake)
	return gnet.None
}

// drainPause is how often a closing connection is looked at whose last bytes the peer has not taken yet: gnet tells
// nobody when its buffer runs empty.
const drainPause = 20 * time.Millisecond

// OnClose ends the session, unless it owes a reply to a client that only closed its own direction.
func (l *loops) OnClose(c gnet.Conn, err error) gnet.Action {
	k := c.Context().(*link)
	k.wokenBy(nil)
	switch {
	case k.session == nil:
	case errors.Is(err, io.EOF) && k.session.Owing():
		l.lingerOn(k, c)
	default:
		k.session.Close()
	}
	return gnet.None
}

// wake has the session resumed, from any goroutine.
func (k *link) wake() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waker != nil {
		k.waker()
	}
}

func (k *link) wokenBy(waker func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waker = waker
}

// stop ends the loops and their connections.
func (l *loops) stop(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- l.client.Stop() }()
	select {
	case err := <-done:
		return err
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
