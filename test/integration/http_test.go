package integration

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/certs"
	"cellserver/test/peer"
)

// callHTTP makes a call at a base URL, and returns the reply and the version of HTTP.
func callHTTP(t *testing.T, client *http.Client, base, call string) (reply, proto string) {
	t.Helper()
	got, err := client.Post(base+"/v1", "application/json", strings.NewReader(call))
	require.NoError(t, err)
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	return strings.TrimSpace(string(body)), got.Proto
}

// The HTTP port, its Unix socket and the port of RESP have the same keys. At SIGTERM, a call that waits gets
// its reply.
func TestHTTP(t *testing.T) {
	port, socket := strconv.Itoa(peer.FreePort(t)), filepath.Join(t.TempDir(), "http.sock")
	server := peer.StartPlain(t, "--http-port", port, "--http-unixsocket", socket)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	tcp := &http.Client{Transport: transport}
	reply, _ := callHTTP(t, tcp, "http://127.0.0.1:"+port, `["CL.FIXED", "user", 2, 3600]`)
	assert.Contains(t, reply, "[0,2,1,-1,")

	local := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer local.CloseIdleConnections()
	reply, _ = callHTTP(t, &http.Client{Transport: local}, "http://unix", `["CL.FIXED", "user", 2, 3600]`)
	assert.Contains(t, reply, "[0,2,0,-1,")
	assert.Contains(t, peer.Ask(t, server.Addr, "CLIENT", "LIST"), " cmd=cl.fixed ")
	assert.Contains(t, peer.Ask(t, server.Addr, "CLIENT", "LIST"), " laddr="+socket+":0 ")

	answer := make(chan string, 1)
	go func() {
		reply, _ := callHTTP(t, tcp, "http://127.0.0.1:"+port, `["CL.FIXED", "user", 2, 3600, 1, "WAIT", 3600000]`)
		answer <- reply
	}()
	peer.Says(t, server.Addr, "blocked_clients:1", "INFO", "clients")
	server.Signal(syscall.SIGTERM)
	assert.Contains(t, <-answer, "[1,2,0,")
	assert.Zero(t, server.Wait())
}

// The HTTP port with TLS uses the certificates of the TLS port, and speaks HTTP/2.
func TestHTTPWithTLS(t *testing.T) {
	port := strconv.Itoa(peer.FreePort(t))
	s := startSecure(t, "--http-tls-port", port)
	for _, known := range []bool{true, false} {
		config := s.client.Clone()
		if !known {
			config = s.authority.Client(t, certs.Pair{})
		}
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		client := &http.Client{Transport: transport}
		if known {
			reply, proto := callHTTP(t, client, "https://127.0.0.1:"+port, `["CL.FIXED", "user", 2, 3600]`)
			assert.Contains(t, reply, "[0,2,1,-1,")
			assert.Equal(t, "HTTP/2.0", proto)
		} else {
			_, err := client.Get("https://127.0.0.1:" + port + "/v1")
			assert.Error(t, err) // from TLS, or from a write if the server has already closed the connection
		}
		transport.CloseIdleConnections()
	}
}
