package xds

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	pb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"cellserver/internal/envoy"
	"cellserver/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// plane is a control plane. The test reads what it is asked, and says what it answers.
type plane struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	streams chan *stream
}

// stream is a stream of a client.
type stream struct {
	t       *testing.T
	asked   chan *discovery.DiscoveryRequest
	answers chan *discovery.DiscoveryResponse // nil ends the stream
}

var errAway = status.Error(codes.Unavailable, "away")

func (p *plane) StreamAggregatedResources(
	s discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	own := &stream{
		asked: make(chan *discovery.DiscoveryRequest, 100), answers: make(chan *discovery.DiscoveryResponse),
	}
	go func() {
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			own.asked <- r
		}
	}()
	select {
	case p.streams <- own:
	case <-s.Context().Done(): // a stream that no test waits for
		return nil
	}
	for {
		select {
		case answer := <-own.answers:
			if answer == nil {
				return errAway
			}
			if err := s.Send(answer); err != nil {
				return err
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

// client is a client of a control plane, whose pauses take no time.
type client struct {
	*plane
	current *envoy.Current
	first   <-chan struct{}
	pauses  chan time.Duration
}

// startClient starts a client of a control plane; without a plane, of an address where nobody listens.
func startClient(t *testing.T, hasPlane bool, maxMessage int) *client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &client{plane: &plane{streams: make(chan *stream)}, pauses: make(chan time.Duration),
		current: &envoy.Current{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}}
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, c.plane)
	served := make(chan error, 1)
	if hasPlane {
		go func() { served <- server.Serve(listener) }()
	} else {
		served <- listener.Close()
	}
	settings := NewSettings()
	settings.Address, settings.NodeID, settings.MaxMessage = listener.Addr().String(), "n", maxMessage
	own, err := New(settings, c.current, c.current.Log)
	require.NoError(t, err)
	c.first = own.First()
	own.rest = func(ctx context.Context, pause time.Duration) {
		select {
		case c.pauses <- pause:
		case <-ctx.Done():
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		own.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		server.Stop()
		require.NoError(t, <-served)
	})
	return c
}

func (c *client) stream(t *testing.T) *stream {
	s := <-c.streams
	s.t = t
	return s
}

// requirePause requires a pause, give or take a half.
func (c *client) requirePause(t *testing.T, about time.Duration) {
	t.Helper()
	pause := <-c.pauses
	require.True(t, about/2 <= pause && pause < about*3/2, "%v, not about %v", pause, about)
}

// send sends configurations of domains; a name that begins with ! is refused.
func (s *stream) send(version, nonce string, domains ...string) {
	answer := &discovery.DiscoveryResponse{VersionInfo: version, Nonce: nonce, TypeUrl: typeURL}
	for _, name := range domains {
		domain, isWrong := strings.CutPrefix(name, "!")
		d := &pb.RateLimitDescriptor{Key: "a"}
		if isWrong {
			d.Key = ""
		}
		packed, err := anypb.New(&pb.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*pb.RateLimitDescriptor{d}})
		require.NoError(s.t, err)
		answer.Resources = append(answer.Resources, packed)
	}
	s.answers <- answer
}

// requireAsked requires a request with a version, and returns its reason for refusing what was sent before.
func (s *stream) requireAsked(version, nonce string) (reason string) {
	s.t.Helper()
	r := <-s.asked
	require.Equal(s.t, []string{typeURL, "n", version, nonce},
		[]string{r.TypeUrl, r.Node.Id, r.VersionInfo, r.ResponseNonce})
	require.Equal(s.t, r.ErrorDetail != nil, r.ErrorDetail.GetCode() == int32(codes.InvalidArgument))
	return r.ErrorDetail.GetMessage()
}

// A configuration that is wrong is refused with the reason, and the last good one stays in force: also on the next
// stream, which begins with its version.
func TestRefused(t *testing.T) {
	c := startClient(t, true, 4<<20)
	s := c.stream(t)
	require.Empty(t, s.requireAsked("", ""))
	s.send("1", "first", "shop", "other")
	require.Empty(t, s.requireAsked("1", "first"))
	good := c.current.InForce()
	require.Equal(t, 2, good.Domains())
	s.send("2", "second", "third", "!shop")
	require.Equal(t, "shop: a descriptor must have a key, which is not empty", s.requireAsked("1", "second"))
	require.Same(t, good, c.current.InForce())
	require.True(t, c.current.IsFailing())
	foreign, err := anypb.New(&discovery.DiscoveryRequest{})
	require.NoError(t, err)
	s.answers <- &discovery.DiscoveryResponse{VersionInfo: "3", Nonce: "third", Resources: []*anypb.Any{foreign}}
	require.Contains(t, s.requireAsked("1", "third"), "resource 1 of 1: ")
	require.Same(t, good, c.current.InForce())
	s.answers <- nil
	c.requirePause(t, firstPause)
	s = c.stream(t)
	require.Empty(t, s.requireAsked("1", ""))
	require.Same(t, good, c.current.InForce())
	s.send("4", "fourth")
	require.Empty(t, s.requireAsked("4", "fourth"))
	require.Zero(t, c.current.InForce().Domains())
	require.False(t, c.current.IsFailing())
}

// A server that waits for its first configuration also starts if that is refused, as the original does.
func TestFirstIsRefused(t *testing.T) {
	c := startClient(t, true, 4<<20)
	s := c.stream(t)
	require.Empty(t, s.requireAsked("", ""))
	select {
	case <-c.first:
		t.Fatal("nothing was sent yet")
	default:
	}
	s.send("1", "first", "!shop")
	require.NotEmpty(t, s.requireAsked("", "first"))
	<-c.first
	require.Nil(t, c.current.InForce())
}

// A long reason is cut between characters, because a message with half a character cannot be sent.
func TestLongReason(t *testing.T) {
	for pad := range 2 {
		c := startClient(t, true, 4<<20)
		s := c.stream(t)
		s.requireAsked("", "")
		s.send("1", "first", "!"+strings.Repeat("x", pad)+strings.Repeat("é", maxReason))
		reason := s.requireAsked("", "first")
		require.Equal(t, maxReason-pad, len(reason))
	}
}

// The pauses between streams double up to half a minute, and begin again after a configuration has come.
func TestPauses(t *testing.T) {
	c := startClient(t, true, 4<<20)
	about := firstPause
	for range 9 {
		c.stream(t).answers <- nil
		c.requirePause(t, about)
		about = min(2*about, maxPause)
	}
	require.Equal(t, maxPause, about)
	s := c.stream(t)
	s.requireAsked("", "")
	s.send("1", "first", "shop")
	s.requireAsked("1", "first")
	s.answers <- nil
	c.requirePause(t, firstPause)
	c.stream(t).answers <- nil
	c.requirePause(t, 2*firstPause)
}

// Where nobody listens, the pauses grow in the same way.
func TestPausesWithoutPlane(t *testing.T) {
	c := startClient(t, false, 4<<20)
	for about := firstPause; about < maxPause; about *= 2 {
		c.requirePause(t, about)
	}
	c.requirePause(t, maxPause)
	require.Nil(t, c.current.InForce())
}

// A message larger than --envoy-xds-max-message ends the stream, and what was in force stays.
func TestLargestMessage(t *testing.T) {
	const most = 1024
	c := startClient(t, true, most)
	s := c.stream(t)
	s.requireAsked("", "")
	s.send("1", "first", "shop")
	s.requireAsked("1", "first")
	s.send("2", "second", strings.Repeat("x", most/4))
	s.requireAsked("2", "second")
	good := c.current.InForce()
	s.send("3", "third", strings.Repeat("x", most))
	c.requirePause(t, firstPause)
	require.Same(t, good, c.current.InForce())
	require.Empty(t, c.stream(t).requireAsked("2", ""))
}
