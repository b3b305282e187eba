package envoy

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"cellserver/test/peer"
)

var cost = flag.Bool("cost", false, "measure what requests cost, for half a minute: see TestCost")

// bareVariable, set to a port, makes the test program a server on this port that counts nothing.
const bareVariable = "CELLSERVER_BARE_PORT"

// bare answers every request with one status per descriptor, as a service with limits does.
type bare struct {
	pb.UnimplementedRateLimitServiceServer
}

func (bare) ShouldRateLimit(_ context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	a := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK}
	for range r.Descriptors {
		a.Statuses = append(a.Statuses, &pb.RateLimitResponse_DescriptorStatus{
			Code:           pb.RateLimitResponse_OK,
			CurrentLimit:   &pb.RateLimitResponse_RateLimit{RequestsPerUnit: 4_000_000_000, Unit: 3},
			LimitRemaining: 3_999_000_000, DurationUntilReset: &durationpb.Duration{Seconds: 3000},
		})
	}
	return a, nil
}

func serveBare(port string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.InitialWindowSize(64<<10), grpc.InitialConnWindowSize(64<<10))
	pb.RegisterRateLimitServiceServer(server, bare{})
	return server.Serve(listener)
}

// contender is a service with its processes.
type contender struct {
	clients   [2]pb.RateLimitServiceClient // each with its own connection
	processes []*peer.Server
	spent     []float64 // CPU time per request in microseconds, by round
}

func newContender(t *testing.T, port int, processes ...*peer.Server) *contender {
	return &contender{clients: [2]pb.RateLimitServiceClient{dial(t, port), dial(t, port)}, processes: processes}
}

// ticks returns the CPU time that the processes have used, in hundredths of a second.
func (c *contender) ticks(t *testing.T) (sum int) {
	t.Helper()
	for _, p := range c.processes {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
		require.NoError(t, err)
		_, after, _ := strings.Cut(string(text), ") ")
		for _, field := range strings.Fields(after)[11:13] { // user and system time
			n, err := strconv.Atoi(field)
			require.NoError(t, err)
			sum += n
		}
	}
	return sum
}

// round makes requests, 64 at a time, and notes their CPU time.
func (c *contender) round(t *testing.T, descriptors, requests int) {
	t.Helper()
	begin := c.ticks(t)
	var left atomic.Int64
	left.Store(int64(requests))
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for n := left.Add(-1); n >= 0; n = left.Add(-1) {
				r := request("shop", "")
				r.Descriptors = nil
				for d := range descriptors {
					user := fmt.Sprintf("user=%d", (int(n)*descriptors+d)%10_000)
					r.Descriptors = append(r.Descriptors, request("shop", user).Descriptors...)
				}
				if _, err := c.clients[i%2].ShouldRateLimit(context.Background(), r, grpc.WaitForReady(true)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	c.spent = append(c.spent, float64(c.ticks(t)-begin)*10_000/float64(requests))
}

// median returns the median of the rounds, and forgets the rounds.
func (c *contender) median() float64 {
	slices.Sort(c.spent)
	m := c.spent[len(c.spent)/2]
	c.spent = nil
	return m
}

// The CPU time of a request, over all processes of a service: at most 0.40 of the CPU time in envoyproxy/ratelimit with
// its redis-server, and at most 1.25 of the CPU time in a handler that counts nothing. Without -cost, the test only
// checks that they can be measured.
func TestCost(t *testing.T) {
	contenders := startContenders(t, costFolder(t))
	medians, rounds, requests := map[string]float64{}, 1, 100
	if *cost {
		rounds, requests = 5, 10_000
	}
	for _, descriptors := range []int{1, 4} {
		for range rounds {
			for _, c := range contenders {
				c.round(t, descriptors, requests)
			}
		}
		for name, c := range contenders {
			m := c.median()
			medians[fmt.Sprint(name, descriptors)] = m
			t.Logf("%d descriptors, %s: %.1f us of the processors a request", descriptors, name, m)
		}
	}
	if !*cost {
		return
	}
	ours := medians["cellserver1"]
	original, nothing, four := ours/medians["envoyproxy/ratelimit1"], ours/medians["nothing1"], medians["cellserver4"]/ours
	t.Logf("of the original %.2f, of nothing %.2f; four descriptors of one %.2f", original, nothing, four)
	require.LessOrEqual(t, original, 0.40)
	require.LessOrEqual(t, nothing, 1.25)
	require.LessOrEqual(t, four, 1.40)
}

// costFolder returns a folder with the configuration of the compared services.
func costFolder(t *testing.T) (folder string) {
	t.Helper()
	folder = write(t, "shop.yaml", "domain: shop\ndescriptors:\n- key: user\n"+
		"  rate_limit: {unit: hour, requests_per_unit: 4000000000}\n"+
		"- {key: a, rate_limit: {unlimited: true}}\n")
	text, err := os.ReadFile(folder + "/shop.yaml")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(folder+"/probe.yaml", []byte(strings.Replace(string(text), "shop", probe, 1)), 0o600))
	return folder
}

// startContenders starts the original with its redis-server, cellserver, and the handler that counts nothing.
func startContenders(t *testing.T, folder string) map[string]*contender {
	t.Helper()
	program, _ := judgeProgram(t)
	own := start(t, folder)
	barePort := peer.FreePort(t)
	return map[string]*contender{
		"envoyproxy/ratelimit": launchJudge(t, program, folder),
		"cellserver":           newContender(t, own.port, own.server),
		"nothing": newContender(t, barePort, peer.Launch(t,
			exec.Command("env", fmt.Sprint(bareVariable, "=", barePort), os.Args[0]))),
	}
}
