package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"cellserver/internal/meter"
	"cellserver/internal/option"
	"cellserver/internal/session"
)

// ErrClosed is returned by Serve after Shutdown.
var ErrClosed = errors.New("server: closed")

// Transport is the name of a way to serve many connections.
type Transport string

const (
	// EventLoop serves many connections with each of a few goroutines. It is the fastest transport,
	// and exists on Linux only.
	EventLoop Transport = "event-loop"
	// Goroutines serves each connection with a goroutine. It is for stores whose calls block, such
	// as a store that is reached over a network.
	Goroutines Transport = "goroutines"
)

// Config holds the parameters of New.
type Config struct {
	Settings *Settings    // the defaults if nil
	Options  *option.List // all options of the process, to be notified of changes; nil if there are none
	Log      *slog.Logger
	Turns    *meter.MaxCPUTime // measures how long event loops are busy with one connection; may be nil
}

// OutputLimit limits the bytes that wait for a client to read them; 0 is no limit. A client beyond
// Hard is disconnected at once, and a client that stays beyond Soft after SoftDuration.
type OutputLimit struct {
	Hard, Soft   int
	SoftDuration time.Duration
}

// classLimits are the output limits of both classes of clients.
type classLimits struct{ normal, pubsub OutputLimit }

// Server accepts connections and serves them with an instance's sessions. Serve may be called for
// several listeners.
type Server struct {
	instance   *session.Instance
	protected  bool // protected mode: peers that are not on this machine are refused
	output     atomic.Pointer[classLimits]
	log        *slog.Logger
	transport  transport
	timeout    atomic.Int64 // nanoseconds
	maxClients atomic.Int64 // number of connections
	fullUntil  atomic.Int64 // instant until which the server counts as full: see waitForPlace
	warned     sync.Once    // the warning that protected mode refuses peers
	handshakes handshakeQueue

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	closed    bool
	ended     chan struct{}
	accepting sync.WaitGroup
}

// transport is the implementation of a Transport.
type transport interface {
	// attach makes the transport serve a connection until it ends. After a TLS handshake, the
	// connection is a *tls.Conn over a baseConn.
	attach(net.Conn) error
	// beat returns when each event loop has taken a turn.
	beat(ctx context.Context) error
	// drain answers the calls that have arrived, and then closes each connection. When ctx is done,
	// it closes all connections.
	drain(ctx context.Context) error
}

// New starts the transport; Shutdown ends it.
func New(instance *session.Instance, c Config) (*Server, error) {
	settings := c.Settings
	if settings == nil {
		settings = NewSettings()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{instance: instance, log: c.Log, listeners: make(map[net.Listener]struct{}), ended: make(chan struct{})}
	s.protected = settings.ProtectedMode == "yes"
	s.handshakes.open()
	s.applySettings(settings, c.Options)
	switch settings.TransportFor(instance.Store.MayBlock()) {
	case EventLoop:
		var err error
		if s.transport, err = s.startLoops(settings.IOThreads, c.Turns); err != nil {
			return nil, err
		}
	case Goroutines:
		s.transport = &goroutineTransport{instance: instance, output: &s.output, traffic: instance.CountTraffic()}
	default:
		return nil, fmt.Errorf("no transport %q: there are %s and %s", settings.Transport, EventLoop, Goroutines)
	}
	go s.cutIdle()
	return s, nil
}

// TransportFor returns the transport to use. If calls of the store may block, it is Goroutines
// whatever the option says: a call that waits on an event loop would keep all clients of the loop
// waiting.
func (s *Settings) TransportFor(mayBlock bool) Transport {
	chosen := Transport(s.Transport)
	if chosen == EventLoop && mayBlock {
		return Goroutines
	}
	return chosen
}

// cutIdle closes connections that have sent nothing for the option timeout, to within a second.
func (s *Server) cutIdle() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-s.ended:
			return
		case <-ticker.C:
			if timeout := s.timeout.Load(); timeout > 0 {
				s.instance.CutIdle(time.Duration(timeout))
			}
		}
	}
}

// Serve accepts the listener's connections until Shutdown, and then returns ErrClosed. It closes
// the listener.
func (s *Server) Serve(listener net.Listener) error {
	if !s.register(listener) {
		listener.Close()
		return ErrClosed
	}
	defer s.accepting.Done()
	return s.accept(listener, s.admit)
}

func (s *Server) register(listener net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.listeners[listener] = struct{}{}
	s.accepting.Add(1)
	return true
}

// accept admits connections. Errors of Accept are temporary, such as too many open files: it tries
// again after a pause that grows each time, as net/http does.
func (s *Server) accept(listener net.Listener, admit func(net.Conn)) error {
	const shortest, longest = 5 * time.Millisecond, time.Second
	pause := shortest
	for {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			pause = shortest
			s.instance.Unauthenticated().AwaitRoom()
			admit(conn)
		case errors.Is(err, net.ErrClosed):
			return ErrClosed
		default:
			s.log.Warn("accept failed, trying again", "error", err, "in", pause)
			time.Sleep(pause)
			pause = min(2*pause, longest)
		}
	}
}

// admit starts to serve a connection, or sends it an error and closes it.
func (s *Server) admit(conn net.Conn) {
	if refusal := s.refusal(conn); refusal != "" {
		s.instance.CountRefused()
		_, _ = conn.Write([]byte(refusal)) // the empty socket buffer takes it, unless the peer is gone
		conn.Close()
		return
	}
	s.startClient(conn)
}

// startClient hands a connection to the transport, which makes it a client.
func (s *Server) startClient(conn net.Conn) {
	switch err := s.attach(conn); {
	case errors.Is(err, net.ErrClosed): // cut while its handshake ended: by Shutdown, a timeout, or for its memory
		s.log.Debug("connection closed before it became a client", "peer", conn.RemoteAddr())
	case err != nil:
		s.instance.CountRefused()
		s.log.Warn("connection refused", "peer", conn.RemoteAddr(), "error", err)
		conn.Close()
	}
}

// attach hands a connection to the transport. This needs another descriptor for a moment. If no
// descriptor is available, attach tries again until one is.
func (s *Server) attach(conn net.Conn) error {
	for {
		err := s.transport.attach(conn)
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
			return err
		}
		s.log.Warn("accept failed, trying again", "error", err)
		select {
		case <-s.ended:
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// The errors with which connections are refused. Clients compare their beginnings, which are
// Redis's.
const (
	errMaxClients    = "-ERR max number of clients reached\r\n"
	errProtectedMode = "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the " +
		"default user. In this mode connections are only accepted from the loopback interface. This is cellserver: set " +
		"a password with --requirepass; or if every client that can reach it may use it, start it with --protected-mode " +
		"no, or else with --bind 127.0.0.1.\r\n"
)

func (s *Server) refusal(conn net.Conn) string {
	switch {
	case s.protected && !s.instance.NeedsPassword() && !isLocal(conn.RemoteAddr()):
		s.warned.Do(func() {
			s.log.Warn("protected mode refused a peer on another machine: set a password with --requirepass, accept every peer with --protected-mode no, or restrict --bind",
				"peer", conn.RemoteAddr())
		})
		return errProtectedMode
	case s.isFull() && !s.handshakes.cutOldest() && !s.waitForPlace():
		return errMaxClients
	}
	return ""
}

func (s *Server) isFull() bool {
	return s.maxClients.Load() > 0 && int64(s.instance.Connected()+s.handshakes.count()) >= s.maxClients.Load()
}

// waitForPlace waits up to 250 ms until there are fewer than maxclients clients, and reports
// whether there are. A client that closes its connection and connects again at once may arrive
// before the event loop has seen the end of its first connection. If the wait fails, the server
// counts as full for a second, or until a client leaves, so that many connections are refused
// without delay. waitForPlace waits again when a client has left, even if the place is taken at
// once: many clients may leave together, and connections that were closed while they waited to be
// accepted take places for a moment.
func (s *Server) waitForPlace() bool {
	const patience, penalty = 250 * time.Millisecond, time.Second
	if s.instance.Now() < s.fullUntil.Load() {
		select {
		case <-s.instance.Departed():
		default:
			return false
		}
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for s.isFull() {
		select {
		case <-s.instance.Departed():
		case <-s.ended:
			return false
		case <-timeout.C:
			if s.isFull() {
				s.fullUntil.Store(s.instance.Now() + int64(penalty))
				return false
			}
		}
	}
	s.instance.NoteDeparture() // for another listener that waits: two clients may have left
	return true
}

// isLocal reports whether a peer is on this machine: on a Unix socket or at a loopback address.
func isLocal(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// displayAddress returns an address as CLIENT LIST shows it. The peers of a Unix socket have no
// address, so Redis shows the path of the socket.
func displayAddress(a net.Addr, conn net.Conn) string {
	if a.Network() == "unix" {
		return conn.LocalAddr().String() + ":0"
	}
	return a.String()
}

// waitFor waits for a group, at most until ctx is done.
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

// Shutdown stops accepting connections, answers the calls that have arrived, and closes each
// connection. When ctx is done it closes the connections that are left, and returns the error of
// ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.ended)
	for listener := range s.listeners {
		listener.Close()
	}
	s.mu.Unlock()
	s.accepting.Wait()
	s.handshakes.shutdown()
	s.instance.UnblockAll() // blocked clients get their replies
	return s.transport.drain(ctx)
}
