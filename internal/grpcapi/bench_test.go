package grpcapi_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"cellserver/internal/commands"
	"cellserver/internal/envoy"
	"cellserver/internal/grpcapi"
	"cellserver/internal/store/memory"
)

// bare answers every request with one status per descriptor, and counts nothing.
type bare struct {
	pb.UnimplementedRateLimitServiceServer
}

func (bare) ShouldRateLimit(_ context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	a := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK}
	for range r.Descriptors {
		a.Statuses = append(a.Statuses, &pb.RateLimitResponse_DescriptorStatus{
			Code:           pb.RateLimitResponse_OK,
			CurrentLimit:   &pb.RateLimitResponse_RateLimit{Name: "users", RequestsPerUnit: 4_000_000_000, Unit: 3},
			LimitRemaining: 3_999_000_000, DurationUntilReset: &durationpb.Duration{Seconds: 3000},
		})
	}
	return a, nil
}

// BenchmarkShouldRateLimit compares requests with requests to a bare handler that builds as many statuses, with 64 in
// flight on two connections. On a busy machine cpu-ns/op says more than ns/op: it is CPU time, including the clients'.
// The bars are 1.25 times the time of bare for one descriptor, and 1.4 times the time of one descriptor for four.
func BenchmarkShouldRateLimit(b *testing.B) {
	keys := memory.New(memory.Options{})
	b.Cleanup(func() { keys.Close() })
	in, err := commands.New(commands.Config{Store: keys})
	require.NoError(b, err)
	text := "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 4000000000, name: users}}]"
	config, _, err := envoy.Parse([]envoy.File{{Name: "a", Text: []byte(text)}}, false, nil)
	require.NoError(b, err)
	own := grpcapi.New(grpcapi.Config{Instance: in, Settings: grpcapi.NewSettings(),
		InForce: func() *envoy.Config { return config }})
	b.Cleanup(func() { own.Shutdown(context.Background()) })
	plain := grpc.NewServer(grpc.InitialWindowSize(64<<10), grpc.InitialConnWindowSize(64<<10))
	pb.RegisterRateLimitServiceServer(plain, bare{})
	b.Cleanup(plain.Stop)
	for _, c := range []struct {
		name        string
		serve       func(net.Listener) error
		descriptors int
	}{{"bare", plain.Serve, 1}, {"one", own.Serve, 1}, {"four", own.Serve, 4}, {"bare-four", plain.Serve, 4}} {
		b.Run(c.name, func(b *testing.B) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(b, err)
			go func() { _ = c.serve(listener) }()
			ask(b, listener.Addr().String(), c.descriptors)
		})
	}
}

// ask makes requests with 64 in flight on two connections.
func ask(b *testing.B, address string, descriptors int) {
	var clients [2]pb.RateLimitServiceClient
	for i := range clients {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(b, err)
		defer conn.Close()
		clients[i] = pb.NewRateLimitServiceClient(conn)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	before := processorTime(b)
	b.ResetTimer()
	for i := range 64 {
		words := make([]string, descriptors)
		for j := range words {
			words[j] = fmt.Sprintf("user=u%d-%d", i, j)
		}
		r := request("shop", words...)
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := clients[i%2].ShouldRateLimit(b.Context(), r); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// processorTime returns the CPU time that the process has used, in nanoseconds.
func processorTime(b *testing.B) int64 {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return usage.Utime.Nano() + usage.Stime.Nano()
}
