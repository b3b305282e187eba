package web_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/web"
	"cellserver/test/certs"
)

// TestHandshakesTakeTurns: a handshake computes only while it has one of the places that all ports share. It has
// no place while it waits for its peer, and after it has ended or failed.
func TestHandshakesTakeTurns(t *testing.T) {
	authority, pair := certificate(t)
	places, computing := make(chan struct{}, 1), make(chan int, 10)
	config := &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		computing <- len(places)
		return &pair, nil
	}}
	_, address := start(t, web.Config{Handler: echo, Turns: places, TLS: func() *tls.Config { return config }})
	free := func() bool { return len(places) == 0 }

	dial(t, address) // its handshake waits for the peer
	failing := dial(t, address)
	_, err := io.WriteString(failing, "GET / HTTP/1.1\r\n\r\n")
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, failing)
	require.NoError(t, err)
	require.Eventually(t, free, time.Minute, time.Millisecond, "a handshake that has failed keeps its place")

	places <- struct{}{} // another port takes a place
	transport := &http.Transport{TLSClientConfig: authority.Client(t, certs.Pair{}), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	answered := make(chan error, 1)
	go func() {
		response, err := (&http.Client{Transport: transport}).Get("https://" + address)
		if err == nil {
			err = response.Body.Close()
		}
		answered <- err
	}()
	select {
	case <-computing:
		require.Fail(t, "a handshake computes without a place")
	case <-answered:
		require.Fail(t, "a request was answered without a handshake")
	case <-time.After(20 * time.Millisecond):
	}
	<-places
	assert.Equal(t, 1, <-computing, "places that are taken while a handshake computes")
	require.NoError(t, <-answered)
	require.Eventually(t, free, time.Minute, time.Millisecond, "a connection whose request is answered keeps its place")

	idle, err := tls.Dial("tcp", address, authority.Client(t, certs.Pair{}))
	require.NoError(t, err)
	defer idle.Close()
	assert.Equal(t, 1, <-computing)
	require.Eventually(t, free, time.Minute, time.Millisecond, "a connection without a request keeps its place")
}

// TestRequestsTakeTurns: without TLS too, a request of an unauthenticated peer is answered only while its connection
// has one of the places that all ports share.
func TestRequestsTakeTurns(t *testing.T) {
	places, entered := make(chan struct{}, 1), make(chan int, 1)
	refuse := func(w http.ResponseWriter, _ *http.Request) {
		entered <- len(places)
		w.WriteHeader(http.StatusUnauthorized)
	}
	_, address := start(t, web.Config{Turns: places, Handler: http.HandlerFunc(refuse)})
	places <- struct{}{} // another port takes the place
	conn := dial(t, address)
	_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	require.NoError(t, err)
	select {
	case <-entered:
		require.Fail(t, "a request is answered without a place")
	case <-time.After(20 * time.Millisecond):
	}
	<-places
	select {
	case taken := <-entered:
		assert.Equal(t, 1, taken, "places that are taken while a request is answered")
	case <-time.After(time.Minute):
		require.Fail(t, "a request is not answered although there is a place")
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusUnauthorized, response.StatusCode)
	free := func() bool { return len(places) == 0 }
	require.Eventually(t, free, time.Minute, time.Millisecond, "a connection whose request is answered keeps its place")
}
