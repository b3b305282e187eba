package grpcapi

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"cellserver/internal/client"
	"cellserver/internal/envoy"
	"cellserver/internal/session"
)

// ErrClosed is returned by Serve after Shutdown.
var ErrClosed = grpc.ErrServerStopped

// The bounds of the port.
const (
	maxConns       = 1024
	maxStreams     = 1000             // requests at once on a connection
	maxMessage     = 4 << 20          // bytes of a request
	maxHeaders     = 16 << 10         // bytes of the headers of a request
	window         = 64 << 10         // bytes that may arrive before they are read: of a stream, and of a connection
	beginTimeout   = 10 * time.Second // for the beginning of a connection
	pingAfter      = time.Minute      // of silence
	pingTimeout    = 20 * time.Second // for the answer
	fewestPing     = 10 * time.Second // between pings of a peer
	gracePeriod    = time.Hour        // for the last requests of a connection that has reached its greatest age
	serviceName    = "ratelimit"      // of the health service
	maxDescriptors = 64               // of a request
	maxEntries     = 64               // of a descriptor
)

// workers are the goroutines that handle requests one after another. A goroutine for each request would spend a seventh
// of the server's CPU time on the growth of its stack. Requests that find no worker idle get such a goroutine.
const workers = 32

// Config holds the parameters of New.
type Config struct {
	Instance  *session.Instance
	Settings  *Settings
	Prefix    string               // of the names of keys
	InForce   func() *envoy.Config // the configuration in force; nil for none
	IsFailing func() bool          // reports whether a newer one was refused; nil stands for never
	Protected func() bool          // reports whether peers on other machines are refused; nil stands for never
	Log       *slog.Logger         // for messages that peers cause, which may be very frequent
	// TLS returns the configuration for a new connection of ServeTLS, so that certificates can change. The capacity of
	// Turns is the number of handshakes that may compute at once, on all ports that share it; nil means any number.
	TLS   func() *tls.Config
	Turns chan struct{}
	// CertificateUser returns the user that the certificate of a peer names; empty for none. NamesUsers reports whether
	// it may return any. Both may be nil.
	CertificateUser func(tls.ConnectionState) string
	NamesUsers      func() bool
}

// Server answers the requests of Envoys.
type Server struct {
	pb.UnimplementedRateLimitServiceServer
	config   Config
	answers  *Answers
	instance *session.Instance
	grpc     *grpc.Server
	health   *health.Server
	account  *client.Account // the account of requests of trusted peers
	quota    string          // the names of CL.QUOTA and CL.TAKE: see --rename-command
	take     string
	methods  map[string]bool // the names of all methods
	memory   memory
	counts   counts
	secured  atomic.Pointer[securedConfig]
	healthy  atomic.Bool
	overHTTP sync.Map // *conn by net.Conn

	mu        sync.Mutex
	conns     map[*conn]bool // those with a place, also if they are closed and their handlers run
	strangers int            // of conns: see maxStrangers
	ending    bool           // Drain was called
	warned    sync.Once      // of protected mode
	barred    sync.Once      // of a peer that is not trusted
}

// New returns a server; Shutdown ends it.
func New(c Config) *Server {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{config: c, answers: &c.Settings.Answers, instance: c.Instance, health: health.NewServer(),
		account: c.Instance.Accounts.Internal("(envoy)"), quota: c.Instance.Table.NameOf("cl.quota"),
		take: c.Instance.Table.NameOf("cl.take"), conns: map[*conn]bool{}, methods: map[string]bool{}}
	s.grpc = grpc.NewServer(
		grpc.Creds(transport{}), grpc.ForceServerCodecV2(newCodec()),
		grpc.UnaryInterceptor(s.guard), grpc.StreamInterceptor(s.guardStream), grpc.InTapHandle(s.tap),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxHeaderListSize(maxHeaders),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window), grpc.ConnectionTimeout(beginTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: fewestPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(c.Settings.keepalive()), grpc.NumStreamWorkers(workers),
	)
	s.register(&pb.RateLimitService_ServiceDesc, s)
	s.register(&healthpb.Health_ServiceDesc, s.health)
	s.CheckHealth()
	return s
}

// keepalive returns when the server asks silent peers whether they are there, and when it asks Envoys to connect again.
// grpc-go adds or subtracts up to a tenth of the age.
func (s *Settings) keepalive() keepalive.ServerParameters {
	return keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout,
		MaxConnectionAge: time.Duration(s.MaxAge) * time.Second, MaxConnectionAgeGrace: gracePeriod}
}

// CheckHealth sets the health: with --envoy-healthy-needs-domain, the server is healthy while a domain is configured.
// It is to be called when the configuration has changed.
func (s *Server) CheckHealth() {
	config := s.config.InForce()
	healthy := s.config.Settings.HealthyNeedsDomain == "no" || config != nil && config.Domains() > 0
	status := healthpb.HealthCheckResponse_SERVING
	if !healthy {
		status = healthpb.HealthCheckResponse_NOT_SERVING
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.healthy.Store(healthy && !s.ending)
	s.health.SetServingStatus(serviceName, status) // no effect after Shutdown
}

// Serve accepts connections until Shutdown, and then returns ErrClosed or nil. It closes the listener.
func (s *Server) Serve(listener net.Listener) error {
	return s.grpc.Serve(&trustedListener{listener, s, false})
}

// ServeTLS is like Serve, for connections that begin with a TLS handshake.
func (s *Server) ServeTLS(listener net.Listener) error {
	return s.grpc.Serve(&trustedListener{listener, s, true})
}

// Drain makes the server unhealthy. Requests are still answered.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	s.healthy.Store(false)
	s.health.Shutdown()
}

// Shutdown stops accepting connections, answers the requests that have arrived, and closes each connection when its
// requests are answered. When ctx is done, it closes all other connections.
func (s *Server) Shutdown(ctx context.Context) {
	s.Drain()
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
	}
}

// guard turns a panic of a handler into an error of its request, and counts the memory of the decoded request.
func (s *Server) guard(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (
	_ any, err error,
) {
	defer s.recovered(info.FullMethod, &err)
	if err := requestOf(ctx).decode(decodedBytes(request)); err != nil {
		return nil, status.Error(codes.ResourceExhausted, err.Error())
	}
	return handler(ctx, request)
}

func (s *Server) guardStream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) (err error) {
	defer requestOf(stream.Context()).leave()
	defer s.recovered(info.FullMethod, &err)
	return handler(server, stream)
}

var errPanic = status.Error(codes.Internal, "the handler failed")

func (s *Server) recovered(method string, err *error) {
	if reason := recover(); reason != nil {
		s.config.Log.Error("a handler panicked", "method", method, "reason", reason, "stack", string(debug.Stack()))
		*err = errPanic
	}
}

// mayConnect reports whether a peer may begin a connection, and sets whether its address is trusted. A peer at another
// address may still have a certificate that names its user.
func (s *Server) mayConnect(c *conn) bool {
	addr := c.RemoteAddr()
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		c.isTrusted = true // it reaches the Unix socket
		return true
	}
	peer := tcp.AddrPort().Addr().Unmap().WithZone("")
	if s.config.Protected != nil && !peer.IsLoopback() && s.config.Protected() {
		s.warned.Do(func() {
			s.config.Log.Warn("protected mode refused an Envoy on another machine: set a password with --requirepass, or accept every peer of --grpc-trusted with --protected-mode no",
				"peer", addr)
		})
		return false
	}
	c.isTrusted = isIn(s.config.Settings.Trusted, peer)
	if c.isTrusted || c.isSecured && s.config.NamesUsers != nil && s.config.NamesUsers() {
		return true
	}
	s.barred.Do(func() {
		s.config.Log.Warn("a peer that is not in --grpc-trusted connected to --grpc-port, and its connection was closed",
			"peer", addr)
	})
	return false
}

func isIn(networks []netip.Prefix, peer netip.Addr) bool {
	for _, network := range networks {
		if network.Contains(peer) {
			return true
		}
	}
	return false
}

// IsClosed reports whether an error of Serve says that the server was shut down.
func IsClosed(err error) bool { return err == nil || errors.Is(err, ErrClosed) }
