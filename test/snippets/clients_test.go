package snippets

import (
	"bytes"
	"context"
	"encoding/json"
	"go/format"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// build compiles a program as if it were a package of this module, without writing it here: the
// option -overlay tells the compiler to read it from elsewhere.
func build(t *testing.T, text string) string {
	dir := t.TempDir()
	source, binary, overlay := filepath.Join(dir, "main.go"), filepath.Join(dir, "program"),
		filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(source, []byte(text), 0o644))
	path, err := filepath.Abs("program/main.go")
	require.NoError(t, err)
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: source}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, replace, 0o644))
	output, err := exec.Command("go", "build", "-buildvcs=false", "-overlay", overlay, "-o", binary,
		"./program").CombinedOutput()
	require.NoError(t, err, string(output))
	return binary
}

func run(t *testing.T, binary string) string {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	output, err := exec.CommandContext(ctx, binary).Output() // go-redis explains on stderr why it cannot connect
	require.NoError(t, err)
	return string(output)
}

// onPort builds a program with another port than 6379, and with longer timeouts than 100 ms,
// because a test machine may be busy.
func onPort(t *testing.T, text, port string) string {
	require.Equal(t, 1, strings.Count(text, "6379"))
	require.Equal(t, 2, strings.Count(text, "100 * time.Millisecond"))
	return build(t, strings.NewReplacer("6379", port, "100 *", "20000 *").Replace(text))
}

// The Go program makes all three decisions.
func TestGoProgram(t *testing.T) {
	text := named(t, "docs/clients.md", "limit.go").text
	formatted, err := format.Source([]byte(text))
	require.NoError(t, err)
	require.Equal(t, string(formatted), text, "gofmt")
	server := peer.Start(t)
	between := startProxy(t, server.Addr)
	program := onPort(t, text, between.port())
	assert.Equal(t, "allowed: 15 left\n", run(t, program))
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	require.NoError(t, client.Do(t.Context(), "CL.THROTTLE", "user123", 15, 30, 60, 300, "FORCE").Err())
	assert.Regexp(t, `^limited: try again in 5\d\d s\n$`, run(t, program))

	between.calls.Store(0)
	between.loses.Store(true)
	assert.Equal(t, "no answer: letting it pass\n", run(t, program))
	assert.EqualValues(t, 1, between.calls.Load())
	between.Close()
	assert.Equal(t, "no answer: letting it pass\n", run(t, program))
}

// By default, go-redis sends a call whose reply was lost three times more, and each takes a token.
// With retries off, it sends the call once.
func TestRepeatedCallsTakeAgain(t *testing.T) {
	for retries, taken := range map[int]int64{0: 4, -1: 1} { // 0 is go-redis's default, 3
		server := peer.Start(t)
		lossy := startProxy(t, server.Addr)
		lossy.loses.Store(true)
		client := redis.NewClient(&redis.Options{Addr: lossy.Addr().String(), MaxRetries: retries, ReadTimeout: patience})
		assert.Error(t, client.Do(t.Context(), "CL.THROTTLE", "k", 99, 1, 100000, 1).Err())
		client.Close()
		assert.Equal(t, taken, lossy.calls.Load())

		direct := redis.NewClient(&redis.Options{Addr: server.Addr})
		var reply []int64
		assert.Eventually(t, func() bool { // the last call may not have been executed yet
			reply, _ = direct.Do(t.Context(), "CL.THROTTLE", "k", 99, 1, 100000, 0).Int64Slice()
			return len(reply) == 5 && reply[2] == 100-taken
		}, patience, 10*time.Millisecond)
		direct.Close()
	}
}

// proxy forwards everything to a server. On request, it closes the connection instead of forwarding
// replies to CL.THROTTLE.
type proxy struct {
	net.Listener
	calls atomic.Int64 // of CL.THROTTLE, seen so far
	loses atomic.Bool
}

func (l *proxy) port() string {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// startProxy starts a proxy for a server.
func startProxy(t *testing.T, server string) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	l := &proxy{Listener: listener}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go l.serve(conn, server)
		}
	}()
	return l
}

func (l *proxy) serve(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	go io.Copy(client, server)
	for buf := make([]byte, 64<<10); ; {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		isThrottle := bytes.Contains(buf[:n], []byte("CL.THROTTLE"))
		if isThrottle {
			l.calls.Add(1)
		}
		if isThrottle && l.loses.Load() {
			client.Close()
			server.Write(buf[:n])
			return
		}
		server.Write(buf[:n])
	}
}
