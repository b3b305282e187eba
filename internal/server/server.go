// Package server moves bytes between sockets and sessions. It knows no command.
package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"cellserver/internal/commands"
)

// ErrClosed is what Serve returns after Shutdown: closed on purpose.
var ErrClosed = errors.New("server: closed")

// Options of a Server.
type Options struct {
	IOThreads int // event loops; as many as the process may use cores if 0
	Log       *slog.Logger
}

// Server accepts connections and answers them with an instance's sessions. Serve may be called for several listeners.
type Server struct {
	loops *loops
	log   *slog.Logger

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	closed    bool
	accepting sync.WaitGroup
}

// New starts the event loops; Shutdown ends them.
func New(instance *commands.Instance, o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	loops, err := startLoops(instance, o)
	if err != nil {
		return nil, err
	}
	return &Server{loops: loops, log: o.Log, listeners: make(map[net.Listener]struct{})}, nil
}

// Serve accepts the listener's connections until Shutdown, and then returns ErrClosed. It closes the listener.
func (s *Server) Serve(listener net.Listener) error {
	if !s.register(listener) {
		listener.Close()
		return ErrClosed
	}
	defer s.accepting.Done()
	return s.accept(listener)
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

// accept hands connections to the loops. An error of accept passes, as when there are too many open files: the listener
// waits a little, longer each time, as net/http's does.
func (s *Server) accept(listener net.Listener) error {
	const shortest, longest = 5 * time.Millisecond, time.Second
	pause := shortest
	for {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			pause = shortest
			if err := s.loops.enroll(conn); err != nil {
				s.log.Warn("connection refused", "peer", conn.RemoteAddr(), "error", err)
			}
		case errors.Is(err, net.ErrClosed):
			return ErrClosed
		default:
			s.log.Warn("accept failed, trying again", "error", err, "in", pause)
			time.Sleep(pause)
			pause = min(2*pause, longest)
		}
	}
}

// Shutdown stops accepting, then ends every connection once what it sent has been answered, or when ctx is done.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for listener := range s.listeners {
		listener.Close()
	}
	s.mu.Unlock()
	s.accepting.Wait()
	return s.loops.stop(ctx)
}
