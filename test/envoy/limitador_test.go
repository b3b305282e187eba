package envoy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"cellserver/test/peer"
)

// limitadorProgram returns the program of limitador, which the environment names. Its server is not published as a
// crate, so it has to be built from its repository: cargo build --release -p limitador-server.
func limitadorProgram(t *testing.T) string {
	t.Helper()
	program := os.Getenv("LIMITADOR")
	if program == "" {
		t.Log("WITHOUT limitador: set LIMITADOR to the program limitador-server")
	}
	return program
}

// limitadorLimits are limits of the user in each of four descriptors, and a limit of one request.
func limitadorLimits() string {
	var text strings.Builder
	for i := range 4 {
		fmt.Fprintf(&text, "- {namespace: shop, max_value: 4000000000, seconds: 3600, "+
			"conditions: ['size(descriptors) > %d'], variables: ['descriptors[%d].user']}\n", i, i)
	}
	text.WriteString("- {namespace: probe, max_value: 1, seconds: 3600, conditions: [], " +
		"variables: ['descriptors[0].user']}\n")
	return text.String()
}

// launchLimitador starts limitador, which keeps the counts in memory.
func launchLimitador(t *testing.T, program string) *contender {
	t.Helper()
	port, file := peer.FreePort(t), filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(file, []byte(limitadorLimits()), 0o600))
	// limitador forgets counts beyond the size of its cache.
	process := peer.Launch(t, exec.Command(program, "--rls-ip", "127.0.0.1", "--rls-port", fmt.Sprint(port),
		"--http-ip", "127.0.0.1", "--http-port", fmt.Sprint(peer.FreePort(t)), file, "memory", "--cache", "200000"))
	c := newContender(t, "limitador", port, process)
	require.Equal(t, pb.RateLimitResponse_OK, c.probe(t, "first"))
	require.Equal(t, pb.RateLimitResponse_OVER_LIMIT, c.probe(t, "first"))
	return c
}

// probe asks limitador about a user who may make one request.
func (c *contender) probe(t *testing.T, user string) pb.RateLimitResponse_Code {
	t.Helper()
	a, err := c.clients[0].ShouldRateLimit(t.Context(), request(probe, "user="+user), grpc.WaitForReady(true))
	require.NoError(t, err)
	return a.OverallCode
}

// limitador, which keeps the counts in memory, has forgotten them after a restart.
func TestLimitadorForgets(t *testing.T) {
	program := limitadorProgram(t)
	if program == "" {
		return
	}
	c := launchLimitador(t, program)
	c.processes[0].Signal(syscall.SIGTERM)
	c.processes[0].Wait()
	c = launchLimitador(t, program) // requires that the first request of the same user is admitted
	require.Equal(t, pb.RateLimitResponse_OVER_LIMIT, c.probe(t, "first"))
}
