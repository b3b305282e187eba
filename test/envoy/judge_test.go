package envoy

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"cellserver/test/peer"
)

// judgeModule is envoyproxy/ratelimit in the newest version that the module proxy has. This version lacks patterns
// with * in the middle and the final form of quota_mode. To test these, name a newer program in ENVOY_RATELIMIT.
const judgeModule = "github.com/envoyproxy/ratelimit/src/service_cmd@v1.4.1-0.20260122083618-3fb702589d36"

var (
	requests = flag.Int("requests", 2500, "requests of each comparison with the original")
	seed     = flag.Uint64("seed", 0, "of the random configurations and requests; 0 for one by the clock")
)

// judgeProgram builds the original, unless the environment names a program, and returns its path. isNew reports
// that the environment named it: such a program has everything that judgeModule lacks.
func judgeProgram(t *testing.T) (path string, isNew bool) {
	t.Helper()
	if path := os.Getenv("ENVOY_RATELIMIT"); path != "" {
		return path, true
	}
	folder := t.TempDir()
	build := exec.Command("go", "install", judgeModule)
	build.Env = append(os.Environ(), "GOBIN="+folder, "GOFLAGS=-mod=mod")
	output, err := build.CombinedOutput()
	require.NoError(t, err, "this test asks envoyproxy/ratelimit, which go install fetches: %s", output)
	return filepath.Join(folder, "service_cmd"), false
}

// startJudge starts the original with a folder of configurations, and a redis-server.
func startJudge(t *testing.T, program, folder string, environment ...string) pb.RateLimitServiceClient {
	t.Helper()
	return launchJudge(t, program, folder, environment...).clients[0]
}

func launchJudge(t *testing.T, program, folder string, environment ...string) *contender {
	t.Helper()
	redis, root, port := peer.StartRedis(t), t.TempDir(), peer.FreePort(t)
	require.NoError(t, os.CopyFS(filepath.Join(root, "limits", "config"), os.DirFS(folder)))
	args := append([]string{"-i", "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "USE_STATSD=false",
		"PORT=" + strconv.Itoa(peer.FreePort(t)), "DEBUG_PORT=" + strconv.Itoa(peer.FreePort(t)),
		"GRPC_PORT=" + strconv.Itoa(port), "LOG_LEVEL=error", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.Addr,
		"RUNTIME_ROOT=" + root, "RUNTIME_SUBDIRECTORY=limits", "RUNTIME_WATCH_ROOT=false",
		"LIMIT_RESPONSE_HEADERS_ENABLED=true"}, environment...)
	process := peer.Launch(t, exec.Command("env", append(args, program)...))
	c := newContender(t, original, port, process, redis)
	peer.Until(t, "the original has read the configurations", func() bool {
		a, err := c.clients[0].ShouldRateLimit(t.Context(), request(probe, "a=b"))
		return err == nil && a.Statuses[0].LimitRemaining > 0
	})
	return c
}

// probe is a domain with an unlimited descriptor, which every folder of configurations has.
const probe = "probe"

// variants are the ways in which both services are started.
var variants = []struct {
	name, judge string
	own         []string
}{
	{"as it is", "SHADOW_MODE=false", nil},
	{"stop when over", "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true", []string{"--envoy-stop-when-over", "yes"}},
	{"metadata", "RESPONSE_DYNAMIC_METADATA=true", []string{"--envoy-metadata", "yes"}},
	{"shadow", "SHADOW_MODE=true", []string{"--envoy-shadow", "yes"}},
}

// The original and cellserver answer random requests about random configurations alike, field by field.
func TestOriginal(t *testing.T) {
	program, isNew := judgeProgram(t)
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			g := newGenerator(t, isNew)
			folder := g.configurations(t)
			judge := startJudge(t, program, folder, v.judge)
			own := start(t, folder, append(v.own, "--envoy-headers", "yes")...)
			for i := range *requests {
				r := g.request()
				difference, err := differenceOf(t, judge, own, r)
				require.NoError(t, err)
				require.Empty(t, difference, "request %d: %v\n%s", i, r, g.texts[r.Domain])
			}
		})
	}
}

// The comparison finds a server that counts differently.
func TestOriginalCatches(t *testing.T) {
	program, isNew := judgeProgram(t)
	g := newGenerator(t, isNew)
	folder := g.configurations(t)
	judge := startJudge(t, program, folder)
	own := start(t, folder, "--envoy-headers", "yes", "--envoy-stop-when-over", "yes")
	for range 20_000 {
		if difference, err := differenceOf(t, judge, own, g.request()); err == nil && difference != "" {
			return
		}
	}
	require.Fail(t, "a server that stops when over is not told from one that does not")
}

// differenceOf asks both services, and says where their answers differ.
func differenceOf(t *testing.T, judge, own pb.RateLimitServiceClient, r *pb.RateLimitRequest) (string, error) {
	t.Helper()
	before := time.Now().Unix()
	theirs, err := judge.ShouldRateLimit(t.Context(), r, grpc.WaitForReady(true))
	if err != nil {
		return "", err
	}
	ours, err := own.ShouldRateLimit(t.Context(), r, grpc.WaitForReady(true))
	if err != nil {
		return "", err
	}
	return compare(theirs, ours, time.Now().Unix()-before), nil
}

// compare compares two answers that were given within some seconds.
func compare(theirs, ours *pb.RateLimitResponse, seconds int64) (difference string) {
	theirs, ours = proto.CloneOf(theirs), proto.CloneOf(ours)
	if len(theirs.Statuses) == len(ours.Statuses) {
		for i, s := range theirs.Statuses {
			if a, b := s.DurationUntilReset, ours.Statuses[i].DurationUntilReset; a != nil && b != nil {
				sameReset(&a.Seconds, &b.Seconds, seconds)
			}
		}
	}
	if len(theirs.ResponseHeadersToAdd) == 3 && len(ours.ResponseHeadersToAdd) == 3 {
		a, _ := strconv.ParseInt(theirs.ResponseHeadersToAdd[2].Value, 10, 64)
		b, _ := strconv.ParseInt(ours.ResponseHeadersToAdd[2].Value, 10, 64)
		sameReset(&a, &b, seconds)
		theirs.ResponseHeadersToAdd[2].Value, ours.ResponseHeadersToAdd[2].Value = fmt.Sprint(a), fmt.Sprint(b)
	}
	sameText(theirs.DynamicMetadata)
	sameText(ours.DynamicMetadata)
	if proto.Equal(theirs, ours) {
		return ""
	}
	return fmt.Sprintf("theirs: %v\nours:   %v", theirs, ours)
}

// sameText makes the texts of limits in metadata comparable: protobuf writes one or two spaces, depending on the
// program. It drops fields that newer versions of the original no longer send.
func sameText(m *structpb.Struct) {
	delete(m.GetFields(), "quotaModeEnabled")
	delete(m.GetFields(), "quotaModeViolations")
	for _, d := range m.GetFields()["descriptors"].GetListValue().GetValues() {
		if limit := d.GetStructValue().GetFields()["limit"]; limit != nil {
			limit.Kind = structpb.NewStringValue(strings.ReplaceAll(limit.GetStringValue(), "  ", " ")).Kind
		}
	}
}

// sameReset makes the times until a window ends equal, if they differ by no more than the time between the answers.
func sameReset(theirs, ours *int64, seconds int64) {
	if *theirs-*ours >= 0 && *theirs-*ours <= seconds {
		*ours = *theirs
	}
}

// generator makes configurations and requests.
type generator struct {
	*rand.Rand
	isNew bool
	texts map[string]string // the configuration of each domain
	units []string          // units whose windows do not end soon, and begin at different instants
}

const domains = 40

func newGenerator(t *testing.T, isNew bool) *generator {
	t.Helper()
	from := *seed
	if from == 0 {
		from = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", from)
	g := &generator{Rand: rand.New(rand.NewPCG(from, 0)), isNew: isNew, texts: map[string]string{}}
	begins, now := map[int64]bool{}, time.Now().Unix()
	for _, unit := range []string{"year", "month", "week", "day", "hour"} {
		length := lengths[unit]
		begin := now - now%length
		if !begins[begin] && begin+length > now+600 {
			begins[begin] = true
			g.units = append(g.units, unit)
		}
	}
	return g
}

// lengths are the lengths of the units, in seconds.
var lengths = map[string]int64{"year": 31_536_000, "month": 2_592_000, "week": 604_800, "day": 86_400, "hour": 3600}
