package envoy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"syscall"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	planeserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	configpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"cellserver/test/certs"
	"cellserver/test/peer"
)

// plane is a control plane: the snapshot server of go-control-plane.
type plane struct {
	snapshots cache.SnapshotCache
	node      string // the node that gets the configurations
	version   int
	port      int
	server    *grpc.Server
	refused   chan string // why configurations were refused
	headers   chan metadata.MD
}

const nodeID = "test"

func startPlane(t *testing.T, options ...grpc.ServerOption) *plane {
	t.Helper()
	p := &plane{snapshots: cache.NewSnapshotCache(true, cache.IDHash{}, nil), node: nodeID, port: peer.FreePort(t),
		refused: make(chan string, 100), headers: make(chan metadata.MD, 100)}
	p.serve(t, options...)
	return p
}

func (p *plane) serve(t *testing.T, options ...grpc.ServerOption) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p.server = grpc.NewServer(options...)
	discovery.RegisterAggregatedDiscoveryServiceServer(p.server, planeserver.NewServer(ctx, p.snapshots,
		planeserver.CallbackFuncs{
			StreamOpenFunc: func(ctx context.Context, _ int64, _ string) error {
				m, _ := metadata.FromIncomingContext(ctx)
				p.headers <- m
				return nil
			},
			StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
				if r.ErrorDetail != nil {
					p.refused <- r.ErrorDetail.Message
				}
				return nil
			},
		}))
	listener, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", p.port))
	require.NoError(t, err)
	server := p.server
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		cancel()
		server.Stop()
	})
}

// send sends configurations.
func (p *plane) send(t *testing.T, configs ...*configpb.RateLimitConfig) {
	t.Helper()
	p.version++
	var list []types.Resource
	for _, c := range configs {
		list = append(list, c)
	}
	snapshot, err := cache.NewSnapshot(fmt.Sprint(p.version), map[resource.Type][]types.Resource{
		resource.RateLimitConfigType: list})
	require.NoError(t, err)
	require.NoError(t, p.snapshots.SetSnapshot(t.Context(), p.node, snapshot))
}

// startPlanned starts a server with this control plane.
func (p *plane) startPlanned(t *testing.T, args ...string) *service {
	t.Helper()
	port := peer.FreePort(t)
	s := &service{port: port}
	s.server = peer.Launch(t, peer.Command(append([]string{"--port", fmt.Sprint(peer.FreePort(t)),
		"--grpc-port", fmt.Sprint(port), "--envoy-xds", fmt.Sprint("localhost:", p.port),
		"--envoy-xds-node", nodeID}, args...)...))
	s.RateLimitServiceClient = dial(t, port)
	return s
}

// limited returns a configuration whose descriptor generic_key has a limit.
func limited(domain string, n uint32) *configpb.RateLimitConfig {
	return &configpb.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*configpb.RateLimitDescriptor{
		{Key: "generic_key", RateLimit: &configpb.RateLimitPolicy{Unit: configpb.RateLimitUnit_YEAR, RequestsPerUnit: n}},
	}}
}

// untilLimit waits until the descriptor generic_key has this limit; 0 stands for no limit.
func (s *service) untilLimit(t *testing.T, n uint32) {
	t.Helper()
	peer.Until(t, fmt.Sprint("the limit is ", n), func() bool {
		r := request("shop", "generic_key=x")
		r.Descriptors[0].IsNegativeHits = true // nothing is counted
		a, err := s.ShouldRateLimit(t.Context(), r, grpc.WaitForReady(true))
		return err == nil && a.Statuses[0].CurrentLimit.GetRequestsPerUnit() == n
	})
}

// A control plane sends configurations, changes them, and takes them away. A wrong configuration is refused with
// the reason, and the configurations in force stay. They also stay while the control plane is away, and after it
// has come back.
func TestControlPlane(t *testing.T) {
	p := startPlane(t)
	p.send(t, limited("shop", 10))
	s := p.startPlanned(t, "--envoy-xds-headers", "authorization:secret", "--envoy-xds-metadata", "a=b,c=d")
	s.untilLimit(t, 10)
	require.Equal(t, []string{"secret"}, (<-p.headers)["authorization"])
	p.send(t, limited("shop", 20), limited("other", 1))
	s.untilLimit(t, 20)
	wrong := limited("shop", 30)
	wrong.Descriptors[0].Key = ""
	p.send(t, wrong, limited("other", 1))
	require.Equal(t, "shop: a descriptor must have a key, which is not empty", <-p.refused)
	s.untilLimit(t, 20)
	p.server.Stop()
	untilLogged(t, s.server, "cannot be asked")
	s.untilLimit(t, 20)
	p.send(t, limited("shop", 40))
	p.serve(t)
	s.untilLimit(t, 40)
	p.send(t)
	s.untilLimit(t, 0)
	untilLogged(t, s.server, "answers again")
}

// Modes, names and metadata of limits have the same effect in messages as in files.
func TestControlPlaneModes(t *testing.T) {
	p := startPlane(t)
	c := limited("shop", 0)
	extra, err := structpb.NewStruct(map[string]any{"tier": "gold"})
	require.NoError(t, err)
	c.Descriptors[0].QuotaMode = true
	shadow := limited("shop", 0).Descriptors[0]
	shadow.Key, shadow.ShadowMode, shadow.Metadata = "watched", true, extra
	free := limited("shop", 0).Descriptors[0]
	free.Key, free.RateLimit = "free", &configpb.RateLimitPolicy{Unlimited: true}
	c.Descriptors = append(c.Descriptors, shadow, free)
	p.send(t, c)
	s := p.startPlanned(t, "--envoy-xds-wait", "yes", "--envoy-metadata", "yes")
	a, err := s.ShouldRateLimit(t.Context(), request("shop", "watched=x"), grpc.WaitForReady(true))
	require.NoError(t, err)
	require.Equal(t, pb.RateLimitResponse_OK, a.OverallCode)
	require.Equal(t, "gold", a.DynamicMetadata.Fields["metadata"].GetStructValue().Fields["tier"].GetStringValue())
	code, _ := s.ask(t, "generic_key=x") // all limits in quota mode are over
	require.Equal(t, pb.RateLimitResponse_OVER_LIMIT, code)
	r := request("shop", "generic_key=x")
	r.Descriptors = append(r.Descriptors, request("shop", "free=x").Descriptors...)
	a, err = s.ShouldRateLimit(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, pb.RateLimitResponse_OVER_LIMIT, a.OverallCode)
	require.Equal(t, ^uint32(0), a.Statuses[1].LimitRemaining)
	require.NotContains(t, s.server.Log(), "level=WARN")
}

// With --envoy-xds-wait, nothing listens before the control plane has sent a configuration.
func TestWaitsForControlPlane(t *testing.T) {
	p := startPlane(t)
	s := p.startPlanned(t, "--envoy-xds-wait", "yes")
	untilLogged(t, s.server, "waiting for")
	_, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", s.port))
	require.Error(t, err)
	p.send(t, limited("shop", 10))
	s.untilLimit(t, 10)
}

// A server that waits ends when it is told to.
func TestWaitingEnds(t *testing.T) {
	s := startPlane(t).startPlanned(t, "--envoy-xds-wait", "yes")
	untilLogged(t, s.server, "waiting for")
	s.server.Signal(syscall.SIGTERM)
	require.Zero(t, s.server.Wait())
}

// Over TLS, both sides show certificates, and a new connection shows the certificates that the
// files have by then.
func TestControlPlaneWithTLS(t *testing.T) {
	authority := certs.New(t)
	shown := make(chan string, 100)
	config := planeConfig(t, authority)
	config.VerifyConnection = func(state tls.ConnectionState) error {
		shown <- state.PeerCertificates[0].Subject.CommonName
		return nil
	}
	security := grpc.Creds(credentials.NewTLS(config))
	p := startPlane(t, security)
	p.send(t, limited("shop", 10))
	pair := authority.Issue(t, "first")
	s := p.startPlanned(t, "--envoy-xds-tls", "yes", "--envoy-xds-tls-ca-cert-file", authority.File,
		"--envoy-xds-tls-cert-file", pair.Cert, "--envoy-xds-tls-key-file", pair.Key)
	s.untilLimit(t, 10)
	require.Equal(t, "first", <-shown)
	rename(t, authority.Issue(t, "second"), pair)
	p.server.Stop()
	p.serve(t, security)
	peer.Until(t, "the second certificate", func() bool {
		select {
		case name := <-shown:
			return name == "second"
		default:
			return false // or the first certificate was shown on several connections
		}
	})
}

// planeConfig returns the configuration of a control plane that asks for certificates.
func planeConfig(t *testing.T, authority *certs.Authority) *tls.Config {
	t.Helper()
	shown := authority.Issue(t, "plane")
	pair, err := tls.LoadX509KeyPair(shown.Cert, shown.Key)
	require.NoError(t, err)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: authority.Client(t, certs.Pair{}).RootCAs}
}
