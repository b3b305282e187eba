// Package web serves HTTP on the ports of the server that have it. A Server is net/http's, with bounds on
// everything that a peer can make it hold: connections, headers, bodies, and the time that each may take.
// It also applies protected mode, and stops gracefully. Users checks the user of a request.
//
// The package does not know what is served: that is the handler of each port.
package web

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cellserver/internal/client"
)

// ErrClosed is returned by Serve after Shutdown.
var ErrClosed = http.ErrServerClosed

// Config holds the parameters of New.
type Config struct {
	Name    string // of the port, for the log
	Handler http.Handler
	// TLS returns the configuration for a new connection, so that certificates can change. It is nil for
	// a port without TLS. HTTP/2 is offered over TLS if every peer must have a certificate.
	TLS func() *tls.Config
	// Turns has room for as many values as connections of unauthenticated peers may compute at once, on all ports that
	// share it; nil for any number. Unauthenticated counts their memory, and cuts connections; nil for no bound.
	Turns           chan struct{}
	Unauthenticated *client.Unauthenticated
	// Protected reports whether peers on other machines are refused at present; nil stands for never.
	Protected func() bool
	// Trusted reports whether an address is one of a gateway and of no other peer. Connections from it make room after
	// connections of unauthenticated peers, also before their first request. nil means never.
	Trusted func(net.Addr) bool
	Log     *slog.Logger // for messages that peers cause, which may be very frequent; may be nil
	// ConnContext, if not nil, adds to the context of the requests of a connection, and ConnClosed is told
	// when it has ended. For TLS, conn is a *tls.Conn.
	ConnContext func(ctx context.Context, conn net.Conn) context.Context
	ConnClosed  func(conn net.Conn)

	MaxConns int           // connections at once; MaxConns by default
	MaxBody  int64         // bytes of a request's body; MaxBody by default
	Read     time.Duration // for a request to arrive, after its header; ReadTimeout by default
	Write    time.Duration // for a request to be answered; WriteTimeout by default
}

// The defaults of a Config, and bounds that all ports share.
const (
	MaxConns     = 1024
	MaxBody      = 1 << 20          // bytes
	ReadTimeout  = 30 * time.Second // see KeepOpen
	WriteTimeout = time.Minute      // see KeepOpen

	headerTimeout  = 10 * time.Second // for a header to arrive, and for a TLS handshake
	maxHeaderBytes = 32 << 10         // more than gateways accept
	// idleTimeout is longer than the times for which proxies keep unused connections (nginx: 60 s), so
	// that it is the proxy that closes: a request that crosses the close of the server would be lost.
	idleTimeout = 3 * time.Minute
	// bodyAtShutdown is how long Shutdown waits for the rest of a body, which may be on its way. If it waited
	// as long as a request may take to arrive, each peer could delay the end of the server by that.
	bodyAtShutdown = 250 * time.Millisecond

	maxStreams = 100 // requests at once on a connection with HTTP/2
	// http2Frame and http2Bodies are the least that HTTP/2 allows, in bytes: of a frame, and of the bodies on a
	// connection that have arrived and are not read.
	http2Frame  = 16 << 10
	http2Bodies = 1<<16 - 1
)

// Server serves one port, or several with the same handler. Serve may be called for several listeners.
type Server struct {
	config   Config
	http     http.Server
	warned   sync.Once // of protected mode
	stopping chan struct{}
	stop     sync.Once

	mu      sync.Mutex
	conns   map[*conn]bool          // that have a place
	users   int                     // number of the connections of users
	byUser  map[*client.Account]int // and of each user
	moments atomic.Uint64           // number of times that a connection has begun to wait for its peer

	secured atomic.Pointer[securedConfig]
}

// New returns a server; Shutdown ends it.
func New(c Config) *Server {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.MaxConns == 0 {
		c.MaxConns = MaxConns
	}
	if c.MaxBody == 0 {
		c.MaxBody = MaxBody
	}
	if c.Read == 0 {
		c.Read = ReadTimeout
	}
	if c.Write == 0 {
		c.Write = WriteTimeout
	}
	s := &Server{config: c, stopping: make(chan struct{})}
	s.conns, s.byUser = make(map[*conn]bool), make(map[*client.Account]int)
	s.http = http.Server{
		Handler: http.HandlerFunc(s.serve), ConnState: s.connState, ConnContext: s.connContext,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: c.Read, WriteTimeout: c.Write, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams,
			MaxReadFrameSize: http2Frame, MaxReceiveBufferPerConnection: http2Bodies,
			MaxReceiveBufferPerStream: http2Bodies},
		ErrorLog: slog.NewLogLogger(&messages{c.Log.Handler(), c.Name}, slog.LevelWarn),
	}
	return s
}

// Serve accepts the listener's connections until Shutdown, and then returns ErrClosed. It closes the
// listener.
func (s *Server) Serve(listener net.Listener) error {
	return s.http.Serve(&boundedListener{listener, s})
}

// Shutdown stops accepting connections, answers the requests that have arrived, and closes each connection. For a body
// that is awaited, it waits for a moment only. When ctx is done it closes all that are left, and returns the error of
// ctx. A handler that answers for as long as its client listens must be ended before.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop.Do(func() { close(s.stopping) })
	done := make(chan error, 1)
	go func() { done <- s.http.Shutdown(ctx) }()
	s.closeWaiting(false)
	late := time.NewTicker(bodyAtShutdown)
	defer late.Stop()
	for {
		select {
		case err := <-done:
			s.closeWaiting(true) // connections that were accepted meanwhile
			if err != nil {
				s.http.Close()
			}
			return err
		case <-late.C:
			s.closeWaiting(true)
		}
	}
}

// closeWaiting closes connections without a request, for which net/http would wait for seconds if they have never sent
// one, and if bodies is true, connections with a request whose body is awaited.
func (s *Server) closeWaiting(bodies bool) {
	s.mu.Lock()
	var waiting []*conn
	for c := range s.conns {
		if c.since.Load() != 0 && !c.active.Load() || bodies && c.arriving.Load() && c.reading.Load() {
			waiting = append(waiting, c)
		}
	}
	s.mu.Unlock()
	for _, c := range waiting {
		c.cut()
	}
}

func (s *Server) connContext(ctx context.Context, socket net.Conn) context.Context {
	ctx = context.WithValue(ctx, connKey{}, ownConn(socket))
	if s.config.ConnContext != nil {
		ctx = s.config.ConnContext(ctx, socket)
	}
	return ctx
}

// connState notes which connections have no request: until its header has arrived, and after its response.
func (s *Server) connState(socket net.Conn, state http.ConnState) {
	c := ownConn(socket)
	c.arriving.Store(false)
	switch state {
	case http.StateNew, http.StateIdle:
		c.answered.Store(state == http.StateIdle)
		c.active.Store(false)
		c.memory.answered()
		c.startWaiting()
	default:
		c.active.Store(true)
		c.stopWaiting()
	}
	select {
	case <-s.stopping:
		if state == http.StateNew {
			c.cut()
		}
	default:
	}
	if ended := state == http.StateClosed || state == http.StateHijacked; ended && s.config.ConnClosed != nil {
		s.config.ConnClosed(socket)
	}
}

// serve answers a request with the handler, after the checks that all ports share. A panic of the handler
// ends its connection and nothing else.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if reason := recover(); reason != nil {
			if reason != http.ErrAbortHandler {
				s.config.Log.Error("a handler panicked", "port", s.config.Name, "path", r.URL.Path, "reason", reason,
					"stack", string(debug.Stack()))
			}
			panic(http.ErrAbortHandler)
		}
	}()
	if r.Body != http.NoBody {
		body, handled := arriving(r)
		defer handled()
		body = http.MaxBytesReader(w, body, s.config.MaxBody)
		if r.Header["Expect"] != nil { // net/http must find its own body, to know that it need not be awaited
			r = r.WithContext(r.Context())
		}
		r.Body = body
	}
	if s.config.Protected != nil && !IsLocal(r) && s.config.Protected() {
		s.refuse(w, r)
		return
	}
	if c := connOf(r); r.ProtoMajor != 1 && c != nil {
		held := streamMemory(r)
		c.memory.grow(held)
		defer c.memory.grow(-held)
	}
	s.config.Handler.ServeHTTP(w, r)
}

const errProtectedMode = "protected mode: no password is set, so connections are only accepted from this machine. " +
	"Set a password with --requirepass, or if every client that can reach the server may use it, start it with " +
	"--protected-mode no."

func (s *Server) refuse(w http.ResponseWriter, r *http.Request) {
	s.warned.Do(func() {
		s.config.Log.Warn("protected mode refused a peer on another machine: set a password with --requirepass, accept every peer with --protected-mode no, or restrict --bind",
			"peer", r.RemoteAddr, "port", s.config.Name)
	})
	w.Header().Set("Connection", "close")
	http.Error(w, errProtectedMode, http.StatusForbidden)
}

// IsLocal reports whether the peer of a request is on this machine: on a Unix socket or at a loopback
// address.
func IsLocal(r *http.Request) bool {
	peer := Peer(r)
	return !peer.IsValid() || peer.IsLoopback()
}

// Peer returns the address of the peer, without a zone. It is not valid for a Unix socket.
func Peer(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return peer.Addr().Unmap().WithZone("")
}

// IsRebound reports whether a request may come from a web page in a browser on this machine. The owner of the page
// could let the name of their site resolve to a loopback address (DNS rebinding). Such a page can set every header
// except Host, in which the browser writes the site's name and this server's port. A gateway on this machine names the
// server by an address or as localhost, or passes on its client's Host, which has another port or none.
func IsRebound(r *http.Request) bool {
	name, port, err := net.SplitHostPort(r.Host)
	if err != nil || r.TLS != nil || !Peer(r).IsLoopback() { // over TLS, the site has no certificate for its name
		return false
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if local == nil || strconv.Itoa(local.Port) != port {
		return false
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	_, err = netip.ParseAddr(name)
	return err != nil && strings.Contains(name, ".") && !strings.HasSuffix(name, ".localhost")
}

// KeepOpen lifts the limits on the time of a request, for a handler that answers for as long as its client
// listens. It must be called when the body has been read. Such a handler has to bound each of its writes:
// see WriteWithin.
func KeepOpen(w http.ResponseWriter) error {
	c := http.NewResponseController(w)
	return errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{}))
}

// WriteWithin makes writes fail when a time is over, until done is called: so a client that does not read
// keeps a handler no longer. There is no deadline in the future, because only the store reads the clock.
func WriteWithin(w http.ResponseWriter, limit time.Duration) (done func() bool) {
	c := http.NewResponseController(w)
	return time.AfterFunc(limit, func() { _ = c.SetWriteDeadline(time.Unix(1, 0)) }).Stop
}

// messages passes the messages of net/http on. That a peer did not complete a handshake is no warning.
type messages struct {
	slog.Handler
	port string
}

func (m *messages) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "http: TLS handshake error") {
		if r.Level = slog.LevelDebug; !m.Enabled(ctx, r.Level) {
			return nil
		}
	}
	r.AddAttrs(slog.String("port", m.port))
	return m.Handler.Handle(ctx, r)
}
