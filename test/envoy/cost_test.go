package envoy

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"cellserver/test/peer"
)

var cost = flag.Bool("cost", false, "measure what requests cost, for minutes: see TestCost")

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
	name      string
	clients   [2]pb.RateLimitServiceClient // each with a connection
	processes []*peer.Server
	idle      float64           // CPU time of the processes without requests, as a part of the time
	spent     map[int][]float64 // by the number of descriptors: CPU time per request in microseconds, by round
}

func newContender(t *testing.T, name string, port int, processes ...*peer.Server) *contender {
	return &contender{name: name, clients: [2]pb.RateLimitServiceClient{dial(t, port), dial(t, port)},
		processes: processes, spent: map[int][]float64{}}
}

// used returns the CPU time that the processes have used, from their CPU clocks, which count nanoseconds.
func (c *contender) used(t *testing.T) (sum time.Duration) {
	t.Helper()
	const scheduler = 2 // CPUCLOCK_SCHED, as in the clock id that clock_getcpuclockid(3) returns
	for _, p := range c.processes {
		var used unix.Timespec
		require.NoError(t, unix.ClockGettime(int32(^p.PID()<<3|scheduler), &used))
		sum += time.Duration(used.Nano())
	}
	return sum
}

// rest measures the CPU time of the processes without requests, such as for keys that have expired. On a busy machine a
// round takes long, so this CPU time must not count for the requests.
func (c *contender) rest(t *testing.T, pause time.Duration) {
	t.Helper()
	begin, used := time.Now(), c.used(t)
	time.Sleep(pause)
	c.idle = float64(c.used(t)-used) / float64(time.Since(begin))
}

// round makes requests, 64 at a time, and returns the CPU time of a request in microseconds.
func (c *contender) round(t *testing.T, descriptors, requests int) float64 {
	t.Helper()
	begin, used := time.Now(), c.used(t)
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
	return (float64(c.used(t)-used) - c.idle*float64(time.Since(begin))) / 1000 / float64(requests)
}

// ratio returns the median, over the rounds, of the CPU time of c divided by the CPU time of another.
func (c *contender) ratio(descriptors int, other *contender, others int) float64 {
	ratios := make([]float64, len(c.spent[descriptors]))
	for i, spent := range c.spent[descriptors] {
		ratios[i] = spent / other.spent[others][i]
	}
	return median(ratios)
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// TestCost measures the CPU time of a request, over all processes of a service. It is at most 0.40 of the CPU time
// in envoyproxy/ratelimit with its redis-server, and at most 1.25 of the CPU time in a handler that counts nothing.
// The rounds of the services alternate, and each ratio is the median of the ratios of the rounds, so that a busy
// machine slows all of them alike. Without -cost, the test only checks that the CPU times can be measured.
func TestCost(t *testing.T) {
	own, nothing, others := startContenders(t, costFolder(t))
	all := append([]*contender{own, nothing}, others...)
	rounds, requests, pause := 1, 100, time.Millisecond
	if *cost {
		rounds, requests, pause = 21, 4000, 5*time.Second
	}
	for round := range rounds + 1 {
		for i := range all {
			c := all[(i+round)%len(all)]
			for _, descriptors := range []int{1, 4} {
				if spent := c.round(t, descriptors, requests); round > 0 { // the first one is for all to begin
					c.spent[descriptors] = append(c.spent[descriptors], spent)
				}
			}
			if round == 0 {
				c.rest(t, pause)
			}
		}
	}
	for _, c := range all {
		t.Logf("%s: %.1f us of CPU time a request, %.1f us with four descriptors, %.2f %% of a CPU without requests; "+
			"cellserver: %.2f and %.2f of it", c.name, median(c.spent[1]), median(c.spent[4]), 100*c.idle,
			own.ratio(1, c, 1), own.ratio(4, c, 4))
	}
	t.Logf("four descriptors: %.2f of one", own.ratio(4, own, 1))
	if !*cost {
		return
	}
	require.LessOrEqual(t, own.ratio(1, nothing, 1), 1.25)
	require.LessOrEqual(t, own.ratio(4, own, 1), 1.40)
	for _, c := range others {
		if c.name == original {
			require.LessOrEqual(t, own.ratio(1, c, 1), 0.40)
		}
	}
}

// original is the name of the service whose clients come to cellserver.
const original = "envoyproxy/ratelimit"

// costFolder returns a folder with the configuration of services that are compared.
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

// startContenders starts cellserver, the handler that counts nothing, the original with its redis-server, and limitador
// if there is one.
func startContenders(t *testing.T, folder string) (own, nothing *contender, others []*contender) {
	t.Helper()
	program, _ := judgeProgram(t)
	server := start(t, folder)
	barePort := peer.FreePort(t)
	own = newContender(t, "cellserver", server.port, server.server)
	nothing = newContender(t, "a handler that counts nothing", barePort,
		peer.Launch(t, exec.Command("env", fmt.Sprint(bareVariable, "=", barePort), os.Args[0])))
	others = []*contender{launchJudge(t, program, folder)}
	if program := limitadorProgram(t); program != "" {
		others = append(others, launchLimitador(t, program))
	}
	return own, nothing, others
}
