// Package envoy tests Envoy's rate limit service of the real binary: with the configurations of docs/envoy.md, and
// beside envoyproxy/ratelimit.
package envoy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"cellserver/test/peer"
)

func TestMain(m *testing.M) {
	if port := os.Getenv(bareVariable); port != "" {
		fmt.Println(serveBare(port))
		return
	}
	peer.Main(m)
}

// block returns the block of a page that begins with a comment.
func block(t *testing.T, begins string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/envoy.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "```yaml\n# "+begins)
	require.True(t, found, begins)
	text, _, _ := strings.Cut(rest, "\n```")
	return "#" + text + "\n"
}

// write writes a file into a new folder, and returns the folder.
func write(t *testing.T, name, text string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	return folder
}

// service is a rate limit service.
type service struct {
	pb.RateLimitServiceClient
	server *peer.Server
	port   int
}

// overStore returns the options for a new store that a busy machine may keep waiting.
func overStore(t *testing.T) []string {
	t.Helper()
	return []string{"--store", "redis://" + peer.StartStore(t).Addr, "--store-timeout", "30000"}
}

// start starts cellserver with a configuration.
func start(t *testing.T, folder string, args ...string) *service {
	t.Helper()
	port := peer.FreePort(t)
	s := &service{port: port}
	s.server = peer.Start(t, append(args, "--grpc-port", fmt.Sprint(port), "--envoy-config", folder)...)
	s.RateLimitServiceClient = dial(t, port)
	if slices.Contains(args, "--store") {
		peer.Says(t, s.server.Addr, "store_reached:1", "info", "store")
	}
	return s
}

func dial(t *testing.T, port int) pb.RateLimitServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(fmt.Sprint("127.0.0.1:", port), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return pb.NewRateLimitServiceClient(conn)
}

// untilLogged waits until a server's log contains a text. A line may arrive here later than a reply that was sent after
// it.
func untilLogged(t *testing.T, server *peer.Server, text string) {
	t.Helper()
	peer.Until(t, "the log has: "+text, func() bool { return strings.Contains(server.Log(), text) })
}

// request returns a request with a descriptor, whose entries are written as "a=b c=d".
func request(domain, descriptor string) *pb.RateLimitRequest {
	d := new(common.RateLimitDescriptor)
	for word := range strings.FieldsSeq(descriptor) {
		key, value, _ := strings.Cut(word, "=")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return &pb.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{d}}
}

func (s *service) ask(t *testing.T, descriptor string) (code pb.RateLimitResponse_Code, remaining uint32) {
	t.Helper()
	a, err := s.ShouldRateLimit(t.Context(), request("shop", descriptor), grpc.WaitForReady(true))
	require.NoError(t, err)
	return a.OverallCode, a.Statuses[0].LimitRemaining
}

// The limits of docs/envoy.md count, over each store, and again after a reload.
func TestDocument(t *testing.T) {
	folder := write(t, "shop.yaml", block(t, "limits/shop.yaml"))
	for name, args := range map[string][]string{
		"memory": nil,
		"folder": {"--dir", t.TempDir()},
		"store":  overStore(t),
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, folder, args...)
			const hour = "path=/files/1 user=a"
			code, first := s.ask(t, hour)
			require.Equal(t, pb.RateLimitResponse_OK, code)
			_, second := s.ask(t, strings.Replace(hour, "1", "2", 1))
			require.Contains(t, []uint32{18, 19}, second) // 19 if a new hour has begun
			require.EqualValues(t, 19, first)
			code, remaining := s.ask(t, "path=/other user=a")
			require.Equal(t, pb.RateLimitResponse_OK, code)
			require.Zero(t, remaining)
			text := strings.Replace(block(t, "limits/shop.yaml"), "requests_per_unit: 20", "requests_per_unit: 0", 1)
			require.NoError(t, os.WriteFile(filepath.Join(folder, "shop.yaml"), []byte(text), 0o600))
			peer.Until(t, "the new limit counts", func() bool {
				code, _ := s.ask(t, hour)
				return code == pb.RateLimitResponse_OVER_LIMIT
			})
			require.NoError(t, os.WriteFile(filepath.Join(folder, "shop.yaml"), []byte(block(t, "limits/shop.yaml")), 0o600))
		})
	}
}

// The policies of docs/envoy.md count in place of limits, over each store.
func TestDocumentOfPolicies(t *testing.T) {
	folder := write(t, "api.yaml", block(t, "limits/api.yaml"))
	policies := filepath.Join(write(t, "policies.yaml", block(t, "policies.yaml")), "policies.yaml")
	for name, args := range map[string][]string{
		"memory": nil,
		"folder": {"--dir", t.TempDir()},
		"store":  overStore(t),
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, folder, append(args, "--policies", policies)...)
			ask := func(descriptor string, hits uint32) *pb.RateLimitResponse_DescriptorStatus {
				r := request("api", descriptor)
				r.HitsAddend = hits
				a, err := s.ShouldRateLimit(t.Context(), r, grpc.WaitForReady(true))
				require.NoError(t, err)
				require.Equal(t, a.OverallCode, a.Statuses[0].Code)
				return a.Statuses[0]
			}
			first := ask("user=alice", 1)
			require.Equal(t, "api.throttle", first.CurrentLimit.Name)
			require.EqualValues(t, 20, first.CurrentLimit.RequestsPerUnit)
			require.EqualValues(t, 19, first.LimitRemaining)
			require.Equal(t, pb.RateLimitResponse_OVER_LIMIT, ask("user=alice", 21).Code)
			require.Equal(t, pb.RateLimitResponse_OK, ask("tenant=t user=alice", 20).Code)
			require.Equal(t, pb.RateLimitResponse_OK, ask("user=partner-7", 200).Code)
		})
	}
}

// A restart with --dir forgets nothing.
func TestRestart(t *testing.T) {
	folder, state := write(t, "shop.yaml", "domain: shop\ndescriptors:\n- key: user\n"+
		"  rate_limit: {unit: year, requests_per_unit: 2}\n"), t.TempDir()
	s := start(t, folder, "--dir", state)
	s.ask(t, "user=a")
	s.ask(t, "user=a")
	s.server.Stop()
	s = start(t, folder, "--dir", state)
	code, _ := s.ask(t, "user=a")
	require.Equal(t, pb.RateLimitResponse_OVER_LIMIT, code)
}

// Two servers over one store together admit exactly what a single server would.
func TestTogether(t *testing.T) {
	folder := write(t, "shop.yaml", "domain: shop\ndescriptors:\n- key: user\n"+
		"  rate_limit: {unit: year, requests_per_unit: 10}\n")
	store := overStore(t)
	servers := []*service{start(t, folder, store...), start(t, folder, store...)}
	admitted := 0
	for i := range 30 {
		if code, _ := servers[i%2].ask(t, "user=a"); code == pb.RateLimitResponse_OK {
			admitted++
		}
	}
	require.Equal(t, 10, admitted)
}

// A server starts even if a file is broken: requests get an error until the file is mended.
func TestBrokenFile(t *testing.T) {
	folder := write(t, "shop.yaml", "domain: shop\ndescriptors: [{}]\n")
	port := peer.FreePort(t)
	server := peer.Launch(t, peer.Command("--port", fmt.Sprint(peer.FreePort(t)), "--grpc-port", fmt.Sprint(port),
		"--envoy-config", folder))
	client := dial(t, port)
	peer.Until(t, "the server says that it has no configuration", func() bool {
		_, err := client.ShouldRateLimit(t.Context(), request("shop", "a=b"), grpc.WaitForReady(true))
		return err != nil && strings.Contains(err.Error(), "code = Unknown desc = no rate limit configuration loaded")
	})
	require.NoError(t, os.WriteFile(filepath.Join(folder, "shop.yaml"), []byte("domain: shop\n"), 0o600))
	peer.Until(t, "the mended file is in force", func() bool {
		_, err := client.ShouldRateLimit(t.Context(), request("shop", "a=b"))
		return err == nil
	})
	untilLogged(t, server, "shop.yaml:2: a descriptor must have a key")
}
