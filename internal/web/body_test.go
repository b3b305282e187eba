package web_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/web"
	"cellserver/test/certs"
)

// TestShutdownWithoutBodies: requests whose bodies do not arrive do not delay the end, whether a handler
// reads the bodies or not. The responses to requests whose bodies have arrived are not cut off, also if the
// handler has not read the bodies, and if the response takes longer.
func TestShutdownWithoutBodies(t *testing.T) {
	authority, pair := certificate(t)
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	t.Run("TCP", func(t *testing.T) {
		shutdownWithoutBodies(t, nil, func(conn net.Conn) net.Conn { return conn })
	})
	t.Run("TLS", func(t *testing.T) {
		trusting := authority.Client(t, certs.Pair{})
		trusting.ServerName = "127.0.0.1"
		secure := func(conn net.Conn) net.Conn { return tls.Client(conn, trusting) }
		shutdownWithoutBodies(t, func() *tls.Config { return config }, secure)
	})
}

func shutdownWithoutBodies(t *testing.T, config func() *tls.Config, secure func(net.Conn) net.Conn) {
	entered, more := make(chan struct{}, 9), make(chan struct{})
	long := strings.Repeat("a", 16<<20) // more than the buffers of a connection
	answer := func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		switch r.URL.Path {
		case "/refused":
			w.WriteHeader(http.StatusUnauthorized)
		case "/long":
			_, _ = io.WriteString(w, long)
		case "/stream":
			_, _ = io.WriteString(w, "begun, ")
			_ = http.NewResponseController(w).Flush()
			<-more
			_, _ = io.WriteString(w, "ended")
		default:
			echo(w, r)
		}
	}
	s, address := start(t, web.Config{Read: time.Hour, TLS: config, Handler: http.HandlerFunc(answer)})
	send := func(path, header, body string) net.Conn {
		conn := secure(dial(t, address))
		post(t, conn, path, header, body)
		<-entered
		return conn
	}
	slow, stream := send("/long", "", "abc"), bufio.NewReader(send("/stream", "", "abc"))
	streamed, err := http.ReadResponse(stream, nil)
	require.NoError(t, err)
	dropped := []net.Conn{send("/refused", "", ""), send("/", "", "ab"), send("/", "Expect: 100-continue\r\n", "")}
	_, err = io.ReadFull(dropped[2], make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n")))
	require.NoError(t, err)

	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(context.Background()) }()
	for i, conn := range dropped {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err := conn.Read(make([]byte, 1))
		require.Error(t, err, i)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, i)
	}
	close(more)
	text, _ := io.ReadAll(streamed.Body)
	assert.Equal(t, "begun, ended", string(text))
	response, err := http.ReadResponse(bufio.NewReader(slow), nil)
	require.NoError(t, err)
	got, _ := io.Copy(io.Discard, response.Body)
	assert.EqualValues(t, len(long), got)
	require.NoError(t, <-stopped)
}

// post sends a request whose body has three bytes.
func post(t *testing.T, conn net.Conn, path, header, body string) {
	_, err := io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n"+header+"\r\n"+body)
	require.NoError(t, err)
}

// TestProtectedModeWithoutBodies: a peer that protected mode refuses keeps no place by not sending its body,
// and does not delay the end.
func TestProtectedModeWithoutBodies(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	refused := make(chan struct{}, 3)
	protected := func() bool { refused <- struct{}{}; return true }
	s := startOn(t, web.Config{Handler: echo, Protected: protected, MaxConns: 1, Read: time.Hour}, remote{listener})
	address := listener.Addr().String()
	post(t, dial(t, address), "/", "", "")
	<-refused
	second := dial(t, address)
	status, _, _ := exchange(t, second, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	require.Equal(t, http.StatusForbidden, status, "of a peer for which another makes room")
	<-refused
	_, err = second.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF) // so its place is free
	post(t, dial(t, address), "/", "", "")
	<-refused
	require.NoError(t, s.Shutdown(context.Background()))
}

// TestRefusedBodyIsNotAwaited: a peer that waits for "100 Continue" gets a refusal instead, at once.
func TestRefusedBodyIsNotAwaited(t *testing.T) {
	_, address := start(t, web.Config{Read: time.Hour, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })})
	conn := dial(t, address)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	status, _, _ := exchange(t, conn,
		"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
	assert.Equal(t, http.StatusUnauthorized, status)
}
