package integration

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// answersApart has policies that answer differently while the store makes no decision.
const answersApart = `policies:
  open: {from: "{header.X-User}", errors: allow, limits: [{fixed: {limit: 1000000, period: 1h}}]}
  strict: {from: "{header.X-User}", errors: refuse, limits: [{fixed: {limit: 1000000, period: 1h}}]}
`

// gateway asks a server about requests.
type gateway struct {
	base   string
	client *http.Client
	admin  *redis.Client
}

func startGateway(t *testing.T, store *peer.Server) *gateway {
	file, port := filepath.Join(t.TempDir(), "policies.yaml"), strconv.Itoa(peer.FreePort(t))
	require.NoError(t, os.WriteFile(file, []byte(answersApart), 0o600))
	log, err := os.Create(filepath.Join(t.TempDir(), "log")) // the server logs warnings
	require.NoError(t, err)
	t.Cleanup(func() { log.Close() })
	server := peer.StartLogging(t, log, "--store", "redis://"+store.Addr, "--store-timeout", "500", "--policies", file,
		"--http-port", port)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &gateway{base: "http://127.0.0.1:" + port + "/v1/auth/", client: &http.Client{Transport: transport},
		admin: connect(t, &redis.Options{Addr: server.Addr, TLSConfig: server.TLS})}
}

// ask returns the status of a request, and why there was no decision.
func (g *gateway) ask(t *testing.T, policies string) (status int, reason string, header http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(inTime(t), http.MethodGet, g.base+policies, http.NoBody)
	require.NoError(t, err)
	request.Header.Set("X-User", "u")
	reply, err := g.client.Do(request)
	require.NoError(t, err)
	defer reply.Body.Close()
	_, err = io.Copy(io.Discard, reply.Body)
	require.NoError(t, err)
	return reply.StatusCode, reply.Header.Get("X-Cellserver-Error"), reply.Header
}

// decides waits until the store decides.
func (g *gateway) decides(t *testing.T) {
	t.Helper()
	for _, policies := range []string{"open", "strict", "open,strict"} {
		peer.Until(t, "a decision", func() bool {
			status, reason, header := g.ask(t, policies)
			return status == http.StatusOK && reason == "" && header.Get("RateLimit") != ""
		})
	}
}

// fails checks the answers while the store makes no decision.
func (g *gateway) fails(t *testing.T) {
	t.Helper()
	for policies, want := range map[string]int{
		"open": http.StatusOK, "strict": http.StatusServiceUnavailable, "open,strict": http.StatusServiceUnavailable,
	} {
		status, reason, header := g.ask(t, policies)
		assert.Equal(t, want, status, policies)
		assert.True(t, strings.HasPrefix(reason, "STOREDOWN ") || strings.HasPrefix(reason, "STOREUNSURE "), reason)
		assert.Empty(t, header.Get("RateLimit"), policies)
		assert.Empty(t, header.Get("X-Limited"), policies)
	}
}

// While the store's redis-server is stopped, and when it has ended, gateways get the answers that their
// policies configure, unless --store-fails makes the decisions.
func TestGatewaysWhileTheStoreIsStopped(t *testing.T) {
	store := peer.StartStore(t)
	g := startGateway(t, store)
	g.decides(t)
	store.Signal(syscall.SIGSTOP)
	g.fails(t)
	for fails, want := range map[string]int{"allow": http.StatusOK, "deny": http.StatusTooManyRequests} {
		require.NoError(t, g.admin.ConfigSet(inTime(t), "store-fails", fails).Err())
		for _, policies := range []string{"open", "strict", "open,strict"} {
			status, reason, _ := g.ask(t, policies)
			assert.Equal(t, want, status, "%s, %s", fails, policies)
			assert.Empty(t, reason)
		}
	}
	require.NoError(t, g.admin.ConfigSet(inTime(t), "store-fails", "error").Err())
	store.Signal(syscall.SIGCONT)
	g.decides(t)
	store.Signal(syscall.SIGKILL)
	store.Wait()
	g.fails(t)
}
