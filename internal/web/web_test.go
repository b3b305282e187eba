package web_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/leaktest"
	"cellserver/internal/tlsconfig"
	"cellserver/internal/web"
	"cellserver/test/certs"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// start serves a handler on a loopback port until the end of the test.
func start(t *testing.T, c web.Config) (s *web.Server, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return startOn(t, c, listener), listener.Addr().String()
}

func startOn(t *testing.T, c web.Config, listener net.Listener) *web.Server {
	t.Helper()
	s, ended := web.New(c), make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	t.Cleanup(func() {
		assert.NoError(t, s.Shutdown(context.Background()))
		assert.ErrorIs(t, <-ended, web.ErrClosed)
	})
	return s
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// certificate returns an authority, and a certificate of a server that the authority has issued.
func certificate(t *testing.T) (*certs.Authority, tls.Certificate) {
	authority := certs.New(t)
	own := authority.Issue(t, "server")
	pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
	require.NoError(t, err)
	return authority, pair
}

// exchange sends a request unchanged, and returns the response with its body.
func exchange(t *testing.T, conn net.Conn, request string) (status int, header http.Header, body string) {
	t.Helper()
	_, err := io.WriteString(conn, request)
	require.NoError(t, err)
	got, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	return got.StatusCode, got.Header, string(text)
}

// echo answers with the body of the request.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	_, _ = w.Write(body)
})

func TestBounds(t *testing.T) {
	_, address := start(t, web.Config{Handler: echo, MaxBody: 10})
	post := func(n int) string {
		return fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", n, strings.Repeat("x", n))
	}
	get := func(n int) string {
		return "GET / HTTP/1.1\r\nHost: h\r\nA: " + strings.Repeat("x", n) + "\r\n\r\n"
	}
	for _, c := range []struct {
		name, request string
		status        int
	}{
		{"a body up to the bound", post(10), http.StatusOK},
		{"a longer body", post(11), http.StatusRequestEntityTooLarge},
		{"a longer body in chunks",
			"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n",
			http.StatusRequestEntityTooLarge},
		{"a header up to the bound", get(32 << 10), http.StatusOK},
		{"a longer header", get(40 << 10), http.StatusRequestHeaderFieldsTooLarge},
		{"two lengths", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
			http.StatusBadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, _, _ := exchange(t, dial(t, address), c.request)
			assert.Equal(t, c.status, status)
		})
	}
}

func TestMaxConns(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	entered, answer := make(chan struct{}), make(chan struct{})
	_, address := start(t, web.Config{MaxConns: 2, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-answer
	})})
	conns := []net.Conn{dial(t, address), dial(t, address)}
	for _, conn := range conns {
		_, err := io.WriteString(conn, request)
		require.NoError(t, err)
		<-entered
	}
	refused, err := http.ReadResponse(bufio.NewReader(dial(t, address)), nil)
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, refused.StatusCode)
	close(answer)
	for _, conn := range conns {
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, response.StatusCode)
	}
}

// TestMaxConnsWithoutRequests: connections without a request make room, the longest waiting first.
func TestMaxConnsWithoutRequests(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	s, address := start(t, web.Config{Handler: echo, MaxConns: 2})
	silent := dial(t, address)
	require.Eventually(t, func() bool { return s.Conns() == 1 }, time.Minute, time.Millisecond)
	slow := dial(t, address)
	_, err := io.WriteString(slow, request[:20])
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.Conns() == 2 }, time.Minute, time.Millisecond)
	for _, dropped := range []net.Conn{silent, slow} {
		status, _, _ := exchange(t, dial(t, address), request)
		assert.Equal(t, http.StatusOK, status)
		_, err := dropped.Read(make([]byte, 1))
		assert.Error(t, err)
		assert.Equal(t, 2, s.Conns())
	}
}

// TestMaxConnsWithoutBodies: connections whose requests lack their bodies make room, whether a handler reads
// the bodies or not. Connections that have sent the bodies do not.
func TestMaxConnsWithoutBodies(t *testing.T) {
	entered, answer := make(chan struct{}, 9), make(chan struct{})
	_, address := start(t, web.Config{MaxConns: 3, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/refused":
			w.WriteHeader(http.StatusUnauthorized)
			entered <- struct{}{}
			return
		case "/whole":
			echo(w, r)
			entered <- struct{}{}
			<-answer
			return
		}
		entered <- struct{}{}
		echo(w, r)
	})})
	send := func(request string) net.Conn {
		conn := dial(t, address)
		_, err := io.WriteString(conn, request)
		require.NoError(t, err)
		<-entered
		return conn
	}
	whole := send("POST /whole HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc")
	refused := send("POST /refused HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n")
	read := send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nab")
	for _, dropped := range []net.Conn{refused, read} {
		status, _, _ := exchange(t, dial(t, address), "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		assert.Equal(t, http.StatusOK, status)
		_, err := dropped.Read(make([]byte, 1))
		assert.Error(t, err)
	}
	close(answer)
	response, err := http.ReadResponse(bufio.NewReader(whole), nil)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, response.StatusCode)
}

// TestMaxConnsAfterRequests: connections whose requests have been answered make room.
func TestMaxConnsAfterRequests(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	_, address := start(t, web.Config{Handler: echo, MaxConns: 1})
	used := dial(t, address)
	status, _, _ := exchange(t, used, request)
	require.Equal(t, http.StatusOK, status)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	require.Eventually(t, func() bool { // the client may have the response before the server waits for a request
		response, err := client.Get("http://" + address)
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}, time.Minute, time.Millisecond)
	_, err := used.Read(make([]byte, 1))
	assert.Error(t, err)
}

// remote is a listener whose peers seem to be on another machine.
type remote struct{ net.Listener }

type remoteConn struct{ net.Conn }

func (l remote) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return remoteConn{conn}, err
}

func (remoteConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }

func TestProtectedMode(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	protected := true
	c := web.Config{Handler: echo, Protected: func() bool { return protected }}
	_, local := start(t, c)
	status, _, _ := exchange(t, dial(t, local), request)
	assert.Equal(t, http.StatusOK, status, "of a peer on this machine")

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	startOn(t, c, remote{listener})
	status, _, body := exchange(t, dial(t, listener.Addr().String()), request)
	assert.Equal(t, http.StatusForbidden, status)
	assert.Contains(t, body, "--requirepass")
	protected = false
	status, _, _ = exchange(t, dial(t, listener.Addr().String()), request)
	assert.Equal(t, http.StatusOK, status, "once there is a password")
}

func TestPanicEndsItsConnectionOnly(t *testing.T) {
	var log syncBuffer
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic("planted")
		}
	})
	_, address := start(t, web.Config{Handler: handler, Log: slog.New(slog.NewTextHandler(&log, nil))})
	conn := dial(t, address)
	_, err := io.WriteString(conn, "GET /panic HTTP/1.1\r\nHost: h\r\n\r\n")
	require.NoError(t, err)
	rest, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Empty(t, rest)
	status, _, _ := exchange(t, dial(t, address), "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, log.String(), "reason=planted")
}

// syncBuffer is a buffer for goroutines.
type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// TestShutdown: connections without a request are closed at once, and a request that is being answered
// gets its response.
func TestShutdown(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	entered, leave := make(chan struct{}), make(chan struct{})
	s := web.New(web.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		_, _ = io.WriteString(w, "bye")
	})})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	silent, conn := dial(t, listener.Addr().String()), dial(t, listener.Addr().String())
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	require.NoError(t, err)
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(context.Background()) }()
	rest, _ := io.ReadAll(silent)
	assert.Empty(t, rest)
	close(leave)
	require.NoError(t, <-stopped)
	require.ErrorIs(t, <-ended, web.ErrClosed)
	got, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	body, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	assert.Equal(t, "bye", string(body))
	assert.Equal(t, 0, s.Conns())
}

func TestShutdownTimeout(t *testing.T) {
	entered, stop := make(chan struct{}), make(chan struct{})
	s := web.New(web.Config{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(stop)
	})})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	conn := dial(t, listener.Addr().String())
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	require.NoError(t, err)
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	assert.ErrorIs(t, s.Shutdown(ctx), context.Canceled)
	<-stop // the connection was closed, which the handler's context tells
	<-ended
}

// TestTLS: certificates can change, which ends sessions, and there is HTTP/2 if every peer must have a
// certificate.
func TestTLS(t *testing.T) {
	for clients, proto := range map[string]string{"yes": "HTTP/2.0", "optional": "HTTP/1.1", "no": "HTTP/1.1"} {
		t.Run(clients, func(t *testing.T) { testTLS(t, clients, proto) })
	}
}

func testTLS(t *testing.T, clients, spoken string) {
	authority := certs.New(t)
	load := func(name string) *tls.Config {
		pair := authority.Issue(t, name)
		files := tlsconfig.ServerOptions{CertFile: pair.Cert, KeyFile: pair.Key, AuthClients: clients, SessionCaching: true,
			CACertFile: authority.File}
		c, err := files.Config()
		require.NoError(t, err)
		return c
	}
	var current sync.Map
	current.Store("", load("first"))
	_, address := start(t, web.Config{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }),
		TLS:     func() *tls.Config { c, _ := current.Load(""); return c.(*tls.Config) },

		Turns: make(chan struct{}, 1),
	})
	trust := authority.Client(t, authority.Issue(t, "client"))
	trust.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	get := func() (proto, certificate string, resumed bool) {
		transport := &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		got, err := (&http.Client{Transport: transport}).Get("https://" + address)
		require.NoError(t, err)
		defer got.Body.Close()
		body, err := io.ReadAll(got.Body)
		require.NoError(t, err)
		return string(body), got.TLS.PeerCertificates[0].Subject.CommonName, got.TLS.DidResume
	}
	for i, name := range []string{"first", "second"} {
		if i > 0 {
			current.Store("", load(name))
		}
		proto, certificate, resumed := get()
		assert.Equal(t, []any{spoken, name, false}, []any{proto, certificate, resumed})
		_, _, resumed = get()
		assert.True(t, resumed)
	}
}
