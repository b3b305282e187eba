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

	"cellserver/internal/commands"
	"cellserver/internal/meter"
	"cellserver/internal/option"
)

// ErrClosed is what Serve returns after Shutdown: closed on purpose.
var ErrClosed = errors.New("server: closed")

// Transport is a way to serve many connections.
type Transport string

const (
	// EventLoop has a few goroutines, each with many connections. It is the fastest for plain sockets, and
	// there on Linux only.
	EventLoop  Transport = "event-loop"
	Goroutines Transport = "goroutines" // one a connection: for those that wait (a store beyond a network)
)

// Config is what a Server is made of.
type Config struct {
	Settings *Settings    // the defaults if nil
	Options  *option.List // all of the process's, the Settings' among them; nil if none is changed while the server runs
	Log      *slog.Logger
	Turns    *meter.MaxCPUTime // learns how long event loops are busy with one connection; nil for nobody
}

// OutputLimit bounds the replies that wait for a client to read them, in bytes; 0 is no bound. A
// client beyond Hard is cut off at once, one that stays beyond Soft for SoftFor then.
type OutputLimit struct {
	Hard, Soft   int
	SoftDuration time.Duration
}

// outputs are the limits of both classes of clients.
type outputs struct{ normal, listens OutputLimit }

// Server accepts connections and answers them with an instance's sessions. Serve may be called for
// several listeners.
type Server struct {
	instance  *commands.Instance
	protected bool // peers that are not on this machine are refused
	output    atomic.Pointer[outputs]
	log       *slog.Logger
	transport transport
	timeout   atomic.Int64 // nanoseconds
	most      atomic.Int64 // connections
	inVain    atomic.Int64 // instant until which nobody waits for a place
	warned    sync.Once    // about peers that protected mode refuses
	room      room

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	closed    bool
	ended     chan struct{}
	accepting sync.WaitGroup
}

// transport is what a Transport names.
type transport interface {
	// enroll takes a connection over, for life. It may be a *tls.Conn over a wire, whose hands are
	// shaken.
	enroll(net.Conn) error
	// drain answers what has arrived and then ends each connection, all of them at the latest when
	// ctx is done.
	drain(ctx context.Context) error
}

// New starts the transport; Shutdown ends it.
func New(instance *commands.Instance, c Config) (*Server, error) {
	settings := c.Settings
	if settings == nil {
		settings = NewSettings()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{instance: instance, log: c.Log, listeners: make(map[net.Listener]struct{}), ended: make(chan struct{})}
	s.protected = settings.ProtectedMode == "yes"
	s.room.open()
	s.heed(settings, c.Options)
	switch Transport(settings.Transport) {
	case EventLoop:
		var err error
		if s.transport, err = s.startLoops(settings.IOThreads, c.Turns); err != nil {
			return nil, err
		}
	case Goroutines:
		s.transport = &threads{instance: instance, output: &s.output, traffic: instance.CountTraffic()}
	default:
		return nil, fmt.Errorf("no transport %q: there are %s and %s", settings.Transport, EventLoop, Goroutines)
	}
	go s.cutIdle()
	return s, nil
}

// cutIdle ends connections that have sent nothing for Timeout, to the second.
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

// accept admits connections. An error of accept passes, as when there are too many open files: the
// listener waits a little, longer each time, as net/http's does.
func (s *Server) accept(listener net.Listener, admit func(net.Conn)) error {
	const shortest, longest = 5 * time.Millisecond, time.Second
	pause := shortest
	for {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			pause = shortest
			s.waitForLeavers()
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

// waitForLeavers lets connections that were cut to make room go first, for a moment: they hold
// memory until they are gone.
func (s *Server) waitForLeavers() {
	const pause, pauses = time.Millisecond, 100
	for n := 0; n < pauses && s.instance.Unauthenticated().Overloaded(); n++ {
		time.Sleep(pause)
	}
}

// admit lets a connection in, or tells it why not.
func (s *Server) admit(conn net.Conn) {
	if refusal := s.refusal(conn); refusal != "" {
		s.instance.CountRejected()
		_, _ = conn.Write([]byte(refusal)) // it fits into a socket that nothing was written to, or the peer is gone
		conn.Close()
		return
	}
	s.letIn(conn)
}

// letIn makes a connection a client's.
func (s *Server) letIn(conn net.Conn) {
	if err := s.enroll(conn); err != nil {
		s.instance.CountRejected()
		s.log.Warn("connection refused", "peer", conn.RemoteAddr(), "error", err)
		conn.Close()
	}
}

// enroll hands a connection to the transport. That takes a descriptor more for a moment: when there
// is none, the connection waits as those do that were not accepted yet.
func (s *Server) enroll(conn net.Conn) error {
	for {
		err := s.transport.enroll(conn)
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

// The refusals at the door, in Redis's words as far as clients look at them.
const (
	tooMany = "-ERR max number of clients reached\r\n"
	denied  = "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the " +
		"default user. In this mode connections are only accepted from the loopback interface. This is cellserver: if " +
		"everybody who can reach it may use it, start it with --protected-mode no, or else with --bind 127.0.0.1.\r\n"
)

func (s *Server) refusal(conn net.Conn) string {
	switch {
	case s.protected && !s.instance.Closed() && !isLocal(conn.RemoteAddr()):
		s.warned.Do(func() {
			s.log.Warn("protected mode refused a peer on another machine: set a password with --requirepass, accept every peer with --protected-mode no, or restrict --bind",
				"peer", conn.RemoteAddr())
		})
		return denied
	case s.isFull() && !s.room.giveWay() && !s.placeComes():
		return tooMany
	}
	return ""
}

func (s *Server) isFull() bool {
	return s.most.Load() > 0 && int64(s.instance.Clients()+s.room.count()) >= s.most.Load()
}

// placeComes waits a moment for a place. A client that has closed its connection has given up its
// place, but its loop may not know yet when the next one, or the same again, is at the door. After
// a wait in vain there is none for a while, so that those who are refused in great numbers are
// refused at once.
func (s *Server) placeComes() bool {
	const moment, while = 250 * time.Millisecond, time.Second
	if s.instance.Now() < s.inVain.Load() {
		return false
	}
	timeout := time.NewTimer(moment)
	defer timeout.Stop()
	for s.isFull() {
		select {
		case <-s.instance.Departed():
		case <-s.ended:
			return false
		case <-timeout.C:
			if s.isFull() {
				s.inVain.Store(s.instance.Now() + int64(while))
				return false
			}
		}
	}
	s.instance.NoteDeparture() // for another listener, whose client may have left at the same time
	return true
}

// isLocal says whether a peer is on this machine: by a Unix socket, or from a loopback address.
func isLocal(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// address is how CLIENT LIST shows one: a Unix socket's peers have no names, so Redis shows the
// path of the socket.
func address(a net.Addr, conn net.Conn) string {
	if a.Network() == "unix" {
		return conn.LocalAddr().String() + ":0"
	}
	return a.String()
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

// Shutdown stops accepting, answers what has arrived, and ends every connection, at the latest when
// ctx is done.
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
	s.room.clear()
	s.instance.EndWaits() // those who wait have their replies, too
	return s.transport.drain(ctx)
}
