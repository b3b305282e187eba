package grpcapi_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"cellserver/internal/grpcapi"
)

// shortLived makes connections live for a second.
func shortLived(s *grpcapi.Settings) { s.MaxAge = 1 }

// leastAge is the age of shortLived connections, less the tenth that is random.
const leastAge = 900 * time.Millisecond

// A connection that has reached its age gets a GOAWAY without an error, and not before.
func TestConnectionAge(t *testing.T) {
	s := newService(t, shortLived)
	begin := time.Now()
	socket, err := net.Dial("tcp", s.conn.Target())
	require.NoError(t, err)
	defer socket.Close()
	_, err = socket.Write([]byte(http2.ClientPreface))
	require.NoError(t, err)
	framer := http2.NewFramer(socket, socket)
	require.NoError(t, framer.WriteSettings())
	for {
		frame, err := framer.ReadFrame()
		require.NoError(t, err)
		if goAway, is := frame.(*http2.GoAwayFrame); is {
			require.Equal(t, http2.ErrCodeNo, goAway.ErrCode)
			require.Equal(t, "max_age", string(goAway.DebugData()))
			require.GreaterOrEqual(t, time.Since(begin), leastAge)
			return
		}
	}
}

// Clients whose connections reach their age notice nothing: their requests go to new connections, and what is under way
// on an old one is answered there.
func TestConnectionAgeHarmsNobody(t *testing.T) {
	s := newService(t, shortLived)
	begin := time.Now()
	watch, err := healthpb.NewHealthClient(s.conn).Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "ratelimit"})
	require.NoError(t, err)
	state, err := watch.Recv()
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, state.Status)
	connections := map[string]bool{}
	for tick := time.NewTicker(10 * time.Millisecond); len(connections) < 3; <-tick.C {
		var p peer.Peer
		_, err := s.ShouldRateLimit(t.Context(), request("shop", "user=vip"), grpc.Peer(&p))
		require.NoError(t, err)
		connections[p.LocalAddr.String()] = true
	}
	require.GreaterOrEqual(t, time.Since(begin), 2*leastAge)
	s.server.Drain()
	state, err = watch.Recv()
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, state.Status)
}
