package snippets

import (
	"bytes"
	"context"
	"encoding/json"
	"go/format"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// build compiles a program, and returns the name of the binary.
func build(t *testing.T, text string) string {
	return buildFiles(t, map[string]string{"program/main.go": text})
}

// buildFiles compiles the program in the folder program, with files that are not written to that
// folder: the option -overlay makes the compiler read them from elsewhere.
func buildFiles(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	binary, overlay := filepath.Join(dir, "binary"), filepath.Join(dir, "overlay.json")
	replace := map[string]string{}
	for name, text := range files {
		path, err := filepath.Abs(name)
		require.NoError(t, err)
		replace[path] = filepath.Join(dir, filepath.Base(name))
		require.NoError(t, os.WriteFile(replace[path], []byte(text), 0o644))
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, text, 0o644))
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

// onPort builds a program with a port in place of 6379, and with timeouts longer than 100 ms,
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
	server := peer.Start(t, "--id-ttl", "3600")
	between := startProxy(t, server.Addr)
	program := onPort(t, text, between.port())
	assert.Equal(t, "allowed: 15 left\n", run(t, program))
	client := peer.Client(&redis.Options{Addr: server.Addr})
	defer client.Close()
	require.NoError(t, client.Do(t.Context(), "CL.THROTTLE", "user123", 15, 30, 60, 300, "FORCE").Err())
	assert.Regexp(t, `^limited: try again in 5\d\d s\n$`, run(t, program))

	require.NoError(t, client.Del(t.Context(), "user123").Err()) // limited calls are not remembered
	between.calls.Store(0)
	between.loses.Store(true)
	assert.Equal(t, "no answer: letting it pass\n", run(t, program))
	assert.EqualValues(t, 3, between.calls.Load())
	assert.Contains(t, client.Info(t.Context(), "cell").Val(), "cell_ids_repeated:2\r\n", "the three calls are one")
	between.Close()
	assert.Equal(t, "no answer: letting it pass\n", run(t, program))
}

// By default, go-redis repeats a call whose reply was lost three times, and each repetition takes a
// token. With retries off, it sends the call once.
func TestRepeatedCallsTakeAgain(t *testing.T) {
	for retries, taken := range map[int]int64{0: 4, -1: 1} { // 0 is go-redis's default, 3
		server := peer.Start(t)
		lossy := startProxy(t, server.Addr)
		lossy.loses.Store(true)
		client := peer.Client(&redis.Options{Addr: lossy.Addr().String(), MaxRetries: retries, ReadTimeout: patience})
		assert.Error(t, client.Do(t.Context(), "CL.THROTTLE", "k", 99, 1, 100000, 1).Err())
		client.Close()
		assert.Equal(t, taken, lossy.calls.Load())

		direct := peer.Client(&redis.Options{Addr: server.Addr})
		reply, err := direct.Do(t.Context(), "CL.THROTTLE", "k", 99, 1, 100000, 0).Int64Slice()
		require.NoError(t, err)
		assert.Equal(t, 100-taken, reply[2])
		direct.Close()
	}
}

// proxy forwards everything to a server. On request, it closes the connection instead of forwarding
// the reply to a CL.THROTTLE.
type proxy struct {
	net.Listener
	calls     atomic.Int64 // calls of CL.THROTTLE seen so far
	loses     atomic.Bool  // lose every reply
	losesOnce atomic.Bool  // lose the next reply
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

// serve forwards calls. A client has one call under way on a connection, so after a call the server
// sends only the reply to it.
func (l *proxy) serve(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	var lost atomic.Bool
	go forwardReplies(client, server, &lost)
	for buf := make([]byte, 64<<10); ; {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if bytes.Contains(buf[:n], []byte("CL.THROTTLE")) {
			l.calls.Add(1)
			lost.Store(l.loses.Load() || l.losesOnce.CompareAndSwap(true, false))
		}
		server.Write(buf[:n])
	}
}

// forwardReplies forwards replies until it loses one. By then, the server has executed the call.
func forwardReplies(client, server net.Conn, lost *atomic.Bool) {
	defer client.Close()
	for buf := make([]byte, 64<<10); ; {
		n, err := server.Read(buf)
		if err != nil || lost.Load() {
			return
		}
		client.Write(buf[:n])
	}
}
