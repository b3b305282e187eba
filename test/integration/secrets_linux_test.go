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

// A password is not in the process list, the log, or what the runtime prints when the process
// crashes.
func TestSecretsAreNotTold(t *testing.T) {
	const secret = "a-secret-that-is-told-once"
	port := peer.FreePort(t)
	file := t.TempDir() + "/users"
	require.NoError(t, os.WriteFile(file, []byte("user alice on >"+secret+"3 ~* +@all\n"), 0o600))
	cmd := peer.Command("--port", strconv.Itoa(port), "--loglevel", "debug", "--requirepass", secret, "--user",
		"bob on >"+secret+"2 ~* +@all")
	server := peer.Launch(t, cmd)
	client := redis.NewClient(&redis.Options{Addr: fmt.Sprint("127.0.0.1:", port), Password: secret})
	defer client.Close()
	require.Eventually(t, func() bool { return client.Ping(t.Context()).Err() == nil }, patience, patience/1000)
	require.NoError(t, client.Do(t.Context(), "AUTH", "bob", secret+"2").Err())
	require.Error(t, client.Do(t.Context(), "ACL", "SETUSER", "bob", ">"+secret, "nonsense").Err())
	require.NoError(t, client.ConfigSet(t.Context(), "requirepass", secret+"4").Err())
	for _, name := range []string{"cmdline", "status", "comm"} {
		told, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", cmd.Process.Pid, name))
		require.NoError(t, err)
		assert.NotContains(t, string(told), secret, name)
		if name == "cmdline" {
			assert.Contains(t, string(told), "--requirepass\x00"+strings.Repeat("*", len(secret)))
		}
	}
	server.Signal(syscall.SIGQUIT)
	require.NotZero(t, server.Wait())
	require.Contains(t, server.Stderr(), "goroutine", "it has crashed")
	assert.NotContains(t, server.Stderr()+server.Stdout(), secret)
}

// What ends the process at its start says what is wrong, and no password.
func TestSecretsAreNotToldAtTheStart(t *testing.T) {
	for _, args := range [][]string{
		{"--user", "alice >a-secret nonsense"}, {"--user", "alice >a-secret <a-secret2"},
		{"--requirepass", "a-secret", "--user", "default on"},
	} {
		server := peer.Launch(t, peer.Command(append(args, "--port", "0")...))
		require.Equal(t, 1, server.Wait())
		assert.NotContains(t, server.Stderr()+server.Stdout(), "a-secret")
		assert.Contains(t, server.Stderr(), "cellserver: ")
	}
}
