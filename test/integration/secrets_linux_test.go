package integration

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// A password is not in the process list, not in the log, and not in the runtime's output when the
// process crashes.
func TestSecretsAreNotLogged(t *testing.T) {
	const secret = "a-secret-that-is-replies-once"
	port := peer.FreePort(t)
	file := t.TempDir() + "/users"
	require.NoError(t, os.WriteFile(file, []byte("user alice on >"+secret+"3 ~* +@all\n"), 0o600))
	cmd := peer.Command("--port", strconv.Itoa(port), "--loglevel", "debug", "--requirepass", secret, "--user",
		"bob on >"+secret+"2 ~* +@all")
	server := peer.Launch(t, cmd)
	client := peer.Client(&redis.Options{Addr: fmt.Sprint("127.0.0.1:", port), Password: secret})
	defer client.Close()
	require.Eventually(t, func() bool { return client.Ping(t.Context()).Err() == nil }, patience, patience/1000)
	require.NoError(t, client.Do(t.Context(), "AUTH", "bob", secret+"2").Err())
	require.Error(t, client.Do(t.Context(), "ACL", "SETUSER", "bob", ">"+secret, "nonsense").Err())
	require.NoError(t, client.ConfigSet(t.Context(), "requirepass", secret+"4").Err())
	for _, name := range []string{"cmdline", "status", "comm"} {
		replies, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", cmd.Process.Pid, name))
		require.NoError(t, err)
		assert.NotContains(t, string(replies), secret, name)
		if name == "cmdline" {
			assert.Contains(t, string(replies), "--requirepass\x00"+strings.Repeat("*", len(secret)))
		}
	}
	server.Signal(syscall.SIGQUIT)
	require.NotZero(t, server.Wait())
	require.Contains(t, server.Stderr(), "goroutine", "the server has not crashed")
	assert.NotContains(t, server.Log()+server.Stdout(), secret)
}

// If the server cannot start, its error says why, without a password.
func TestSecretsAreNotInStartErrors(t *testing.T) {
	for _, args := range [][]string{
		{"--user", "alice >a-secret nonsense"}, {"--user", "alice >a-secret <a-secret2"},
		{"--requirepass", "a-secret", "--user", "default on"},
	} {
		server := peer.Launch(t, peer.Command(append(args, "--port", "0")...))
		require.Equal(t, 1, server.Wait())
		assert.NotContains(t, server.Log()+server.Stdout(), "a-secret")
		assert.Contains(t, server.Stderr(), "cellserver: ")
	}
}
