package grpcapi

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"

	"cellserver/internal/envoy"
	"cellserver/internal/metric"
	"cellserver/internal/session"
	"cellserver/internal/web"
)

// Config holds the parameters of New.
type Config struct {
	Instance             *session.Instance
	Settings             *Settings
	Prefix               string
	InForce              func() *envoy.Config
	IsFailing, Protected func() bool
	Log                  *slog.Logger
	TLS                  func() *tls.Config
	Turns                chan struct{}
	CertificateUser      func(tls.ConnectionState) string
	NamesUsers           func() bool
}

// Server is a server without gRPC, which must not be used.
type Server struct{}

func New(Config) *Server                          { panic("without gRPC") }
func (*Server) CheckHealth()                      {}
func (*Server) Metrics() (g metric.Group)         { return g }
func (*Server) OriginalMetrics() (g metric.Group) { return g }
func (*Server) NewHTTP() *web.Server              { return nil }
func (*Server) Serve(net.Listener) error          { return nil }
func (*Server) ServeTLS(net.Listener) error       { return nil }
func (*Server) Drain()                            {}
func (*Server) Shutdown(context.Context)          {}
func IsClosed(error) bool                         { return true }
