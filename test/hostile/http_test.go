package hostile

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/racetest"
	"cellserver/test/peer"
)

const httpPolicies = `policies:
  api: {limits: [{throttle: {burst: 1000000, rate: 1/1h}}], from: "{client_ip}"}
  key: {limits: [{throttle: {burst: 1000000, rate: 1/1h}}], from: "{header.X-User}"}
`

// withHTTP returns the arguments of a server that has policies and a port for HTTP, and the port's address.
func withHTTP(t *testing.T, option string) (args []string, addr string) {
	t.Helper()
	file, port := filepath.Join(t.TempDir(), "policies.yaml"), strconv.Itoa(peer.FreePort(t))
	require.NoError(t, os.WriteFile(file, []byte(httpPolicies), 0o600))
	return []string{"--policies", file, option, port}, net.JoinHostPort("127.0.0.1", port)
}

// request sends bytes on a new connection.
func request(t *testing.T, addr, bytes string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, _ = io.WriteString(conn, bytes) // fails if the server refuses them before it has read all
	return conn
}

// status sends bytes on a new connection, and returns the status of the first response.
func status(t *testing.T, addr, bytes string) int {
	t.Helper()
	conn := request(t, addr, bytes)
	defer conn.Close()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	response.Body.Close()
	return response.StatusCode
}

const asksPolicy = "GET /v1/auth/api HTTP/1.1\r\nHost: h\r\n\r\n"

func toPath(path string) string { return "POST " + path + " HTTP/1.1\r\nHost: h\r\n\r\n" }
func toAuth(fields string) string {
	return "POST /v1/auth/api HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n"
}
func toCalls(fields string) string {
	return "POST /v1 HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n" + fields + "\r\n"
}

var unusualRequests = []struct {
	status  int
	request string
}{
	{200, "GET /v1/auth/api HTTP/1.0\r\n\r\n"},
	{400, "GET /v1/auth/api\r\n\r\n"},
	{505, "GET /v1/auth/api HTTP/3.0\r\nHost: h\r\n\r\n"},
	{404, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
	{400, "*1\r\n$4\r\nPING\r\n"},
	{200, strings.Replace(asksPolicy, "GET", "CONNECT", 1)},
	{431, strings.Replace(asksPolicy, "GET", strings.Repeat("A", 60_000), 1)},
	{200, toPath("http://other/v1/auth/api")},
	{404, toPath("//v1//auth/api")},
	{404, toPath("/v1//auth/api")},
	{404, toPath("/v1/auth")},
	{200, toPath("/v1/auth/%61pi")},
	{400, toPath("/v1/auth/%zz")},
	{200, toPath("/v1/auth/none%00%0d%0aSet-Cookie:%20a=b")}, // because of errors: allow
	{200, toPath("/v1/take/api?subject=a%00b")},
	{400, toPath("/v1/take/api?subject=a;b")},
	{200, toPath("/v1/take/api?subject=" + strings.Repeat("a", 30_000))},
	{400, toPath("/v1/take/api?subject=a&" + strings.Repeat("a=1&", 7000))},
	{400, toAuth("X-User : a\r\n")},
	{400, toAuth("X-User: a\x00b\r\n")},
	{400, toAuth("Host: h\r\n")},
	{200, toAuth("Upgrade: h2c\r\nConnection: Upgrade\r\n")},
	{200, toAuth("X-Forwarded-For: " + strings.Repeat("1.2.3.4,", 3000) + "\r\n")},
	{431, toAuth("X-Forwarded-For: " + strings.Repeat("1.2.3.4,", 1<<17) + "\r\n")},
	{200, toAuth(strings.Repeat("A: b\r\n", 5000))},
	{431, toAuth(strings.Repeat("A: b\r\n", 10_000))},
	{400, toAuth("Content-Length: -3\r\n")},
	{400, toAuth("Content-Length: 99999999999999999999\r\n")},
	{200, toAuth("Content-Length: 4611686018427387904\r\n")},
	{200, toAuth("Transfer-Encoding: chunked\r\n") + "zzz\r\n"},
	{200, toAuth("Content-Length: 3\r\nExpect: 100-continue\r\n")},
	{417, toCalls("Content-Length: 2\r\nExpect: 200-ok\r\n")},
	{400, toCalls("Transfer-Encoding: chunked\r\n") + "zzz\r\n"},
	{400, toCalls("Transfer-Encoding: chunked\r\n") + "fffffffffffffffff\r\n"},
	{400, toCalls("Content-Length: 100000\r\n") + strings.Repeat("[", 100_000)},
}

// Each malformed, long or merely unusual request gets a response, and pipelined requests get theirs in order.
// A request that announces a body and does not send it is answered soon.
func TestUnusualHTTP(t *testing.T) {
	args, addr := withHTTP(t, "--http-port")
	w := watch(t, startLogging(t, args...))
	for _, c := range unusualRequests {
		assert.Equal(t, c.status, status(t, addr, c.request), shorten(c.request))
	}
	const requests = 1000
	conn := request(t, addr, strings.Repeat(asksPolicy, requests))
	for reader, n := bufio.NewReader(conn), 0; n < requests; n++ {
		response, err := http.ReadResponse(reader, nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, response.StatusCode)
	}
	conn.Close()
	until(t, func() bool {
		began := time.Now()
		answered := status(t, addr, toAuth("Content-Length: 3\r\n"))
		return answered == http.StatusOK && time.Since(began) < 50*time.Millisecond
	}, func() string { return "a request without its body is answered within 50 ms" })
	w.becomes("connected_clients", 1)
}

// However many peers send nothing, half a header, or a header without its body, gateways get decisions, other
// clients are served, and the memory is bounded.
func TestUnfinishedHTTP(t *testing.T) {
	half := asksPolicy[:len(asksPolicy)-4]
	for name, what := range map[string]string{
		"nothing": "", "half a header": half,
		"no body":           strings.Replace(toCalls("Content-Length: 10\r\n"), "/v1", "/none", 1),
		"no body of a call": toCalls("Content-Length: 10\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			args, addr := withHTTP(t, "--http-port")
			server := startLogging(t, args...)
			w := watch(t, server)
			memory := w.resident(t)
			for range 1100 { // the port accepts 1024 connections
				request(t, addr, what)
			}
			for range 20 {
				assert.Equal(t, http.StatusOK, status(t, addr, asksPolicy))
			}
			took := measuredClient(t, server, "other", 100)
			t.Logf("RESP: p50 %s, p99 %s", took[50], took[99])
			if !racetest.Enabled {
				assert.Less(t, w.resident(t)-memory, 64<<20)
			}
		})
	}
}

// While peers announce bodies that would take all memory for requests to /v1, and send a byte now and then, the
// requests of others are answered soon.
func TestSlowBodiesOfHTTP(t *testing.T) {
	args, addr := withHTTP(t, "--http-port")
	startLogging(t, args...)
	const call = `["CL.THROTTLE","user",1000000,30,60]`
	slow := make([]net.Conn, 256) // 256 MiB
	for i := range slow {
		slow[i] = request(t, addr, toCalls("Content-Length: 1048576\r\n")+call)
	}
	ask := func(bytes int) int {
		head := toCalls("Content-Length: " + strconv.Itoa(bytes) + "\r\n")
		return status(t, addr, head+call+strings.Repeat(" ", bytes-len(call)))
	}
	for range 20 {
		for _, conn := range slow {
			_, _ = conn.Write([]byte(" ")) // fails if the server has ended the connection
		}
		require.Equal(t, http.StatusOK, ask(len(call)))
		require.Equal(t, http.StatusOK, ask(100_000))
	}
	until(t, func() bool {
		began := time.Now()
		return ask(len(call)) == http.StatusOK && time.Since(began) < 50*time.Millisecond
	}, func() string { return "a small request is answered within 50 ms" })
}

// frame is a frame of HTTP/2.
func frame(kind, flags byte, stream uint32, payload string) string {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))[1:]
	return string(binary.BigEndian.AppendUint32(append(head, kind, flags), stream)) + payload
}

// Floods of HTTP/2 end with their connection or take no memory, and gateways get decisions meanwhile.
func TestFloodsOfHTTP2(t *testing.T) {
	const fields = "\x82\x87\x41\x01h\x44\x0c/v1/auth/api" // GET, https, the authority h, the path
	for name, next := range map[string]func(n uint32) string{
		"rapid reset": func(n uint32) string { return frame(1, 5, 2*n+1, fields) + frame(3, 0, 2*n+1, "\x00\x00\x00\x08") },
		"requests":    func(n uint32) string { return frame(1, 5, 2*n+1, fields) },
		"CONTINUATION": func(n uint32) string {
			return frame(byte(1+min(n, 1)*8), 0, 1, fields+strings.Repeat("\x40\x01a\x01b", 1000))
		},
		"PING":     func(uint32) string { return frame(6, 0, 0, "12345678") },
		"SETTINGS": func(uint32) string { return frame(4, 0, 0, "") },
	} {
		t.Run(name, func(t *testing.T) {
			args, addr := withHTTP(t, "--http-tls-port")
			server := withTLS(t, args...)
			w := watch(t, server.Server)
			memory := w.resident(t)
			config := server.client.Clone()
			config.NextProtos = []string{"h2"}
			flood, err := tls.Dial("tcp", addr, config)
			require.NoError(t, err)
			defer flood.Close()
			require.NoError(t, flood.SetDeadline(time.Now().Add(patience)))
			go func() { _, _ = io.Copy(io.Discard, flood) }()
			_, err = io.WriteString(flood, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+frame(4, 0, 0, ""))
			for n := uint32(0); n < 20_000 && err == nil; n++ {
				_, err = io.WriteString(flood, next(n))
			}
			t.Logf("the flood ended: %v", err)
			gateway := http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: server.client.Clone()}}
			response, err := gateway.Get("https://" + addr + "/v1/auth/api")
			require.NoError(t, err)
			response.Body.Close()
			assert.Equal(t, http.StatusOK, response.StatusCode)
			if !racetest.Enabled {
				assert.Less(t, w.resident(t)-memory, 64<<20)
			}
		})
	}
}
