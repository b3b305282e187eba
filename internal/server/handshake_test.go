package server

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/commands"
	"cellserver/internal/store/memory"
	"cellserver/test/certs"
)

// fullQueue returns a queue without a free slot, in which all handshakes compute.
func fullQueue(t *testing.T) (r *handshakeQueue, inside []*handshake) {
	r = &handshakeQueue{}
	r.open()
	for range maxHandshakes {
		here, there := net.Pipe()
		t.Cleanup(func() { here.Close(); there.Close() })
		w := newBaseConn(here, r)
		h, ok := r.enter(w, nil)
		require.True(t, ok)
		w.waiting.Store(false)
		inside = append(inside, h)
	}
	return r, inside
}

// TestHandshakeSlots checks that a connection that needs a slot waits while all handshakes compute.
// As soon as one handshake waits for its peer, this handshake is cut, and no other.
func TestHandshakeSlots(t *testing.T) {
	r, inside := fullQueue(t)
	assert.False(t, r.cutOldest())
	entered, ended := make(chan bool), make(chan struct{})
	connect := func() {
		here, there := net.Pipe()
		t.Cleanup(func() { here.Close(); there.Close() })
		_, ok := r.enter(newBaseConn(here, r), ended)
		entered <- ok
	}
	go connect()
	select {
	case <-entered:
		require.Fail(t, "the connection got a slot although none was free")
	case <-time.After(20 * time.Millisecond):
	}
	stalled := inside[7]
	stalled.conn.waiting.Store(true)
	_, err := stalled.socket.Read(make([]byte, 1)) // the cut of the connection interrupts the read
	require.ErrorIs(t, err, io.ErrClosedPipe)
	r.leave(stalled)
	assert.True(t, <-entered)
	assert.Equal(t, maxHandshakes, r.count())

	inside[8].conn.waiting.Store(true)
	assert.True(t, r.cutOldest())
	r.leave(inside[8])
	go connect()
	assert.True(t, <-entered)
	go connect() // both handshakes that have entered wait for their peers: one is cut, and keeps its slot
	require.Eventually(t, func() bool { return r.count() == maxHandshakes-1 }, time.Minute, time.Millisecond)
	select {
	case <-entered:
		require.Fail(t, "the connection got a slot although none was free")
	case <-time.After(20 * time.Millisecond):
	}
	assert.Equal(t, maxHandshakes-1, r.count(), "more than one handshake was cut for a connection")
	close(ended)
	assert.False(t, <-entered)
}

// TestHandshakeMemoryCountsOnce checks that after its handshake the memory of a connection counts
// once, as an unauthenticated client's memory. If the handshake counted too, the connection could
// be cut to make room for itself.
func TestHandshakeMemoryCountsOnce(t *testing.T) {
	for _, transport := range []Transport{DefaultTransport, Goroutines} {
		data := &callerStore{Store: memory.New(memory.Options{})}
		t.Cleanup(func() { data.Close() })
		s := newServerOn(t, transport, data, func(s *commands.Settings) {
			// enough for a handshake, or a client, and not for both
			s.Access.Password, s.MaxUnauthenticatedMemory = "secret", client.MemoryLimit{Bytes: 44 << 10}
		})
		var overloaded atomic.Bool
		data.onSetCaller = func() { overloaded.Store(s.instance.Unauthenticated().Overloaded()) }
		authority := certs.New(t)
		own := authority.Issue(t, "server")
		pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
		require.NoError(t, err)
		config := &tls.Config{Certificates: []tls.Certificate{pair}}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go func() {
			_ = s.ServeTLS(listener, TLSOptions{Config: func() *tls.Config { return config }, Timeout: time.Minute})
		}()
		conn, err := tls.Dial("tcp", listener.Addr().String(), authority.Client(t, certs.Pair{}))
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write([]byte("AUTH secret\r\n"))
		require.NoError(t, err)
		reply := make([]byte, len("+OK\r\n"))
		_, err = io.ReadFull(conn, reply)
		require.NoError(t, err, transport)
		require.Equal(t, "+OK\r\n", string(reply))
		require.False(t, overloaded.Load(), "a connection was cut")
	}
}

// A connection that is cut while its handshake ends, for example because the server stops, is not
// logged as a refusal.
func TestCutAtTheEndOfTheHandshake(t *testing.T) {
	var logged bytes.Buffer
	s := newServer(t)
	s.log = slog.New(slog.NewTextHandler(&logged, nil))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	peer, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer peer.Close()
	conn, err := listener.Accept()
	require.NoError(t, err)
	conn.Close()
	s.startClient(conn)
	require.Empty(t, logged.String())
}

// A client that does not use TLS on the TLS port is logged as a warning; other failures are logged as details.
func TestClientWithoutTLSIsLogged(t *testing.T) {
	for sent, level := range map[string]string{"PING\r\n": "WARN", "": "DEBUG"} {
		var out bytes.Buffer
		s := &Server{log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
		here, there := net.Pipe()
		go func() {
			_, _ = there.Write([]byte(sent))
			_, _ = io.Copy(io.Discard, io.LimitReader(there, 1)) // the alert
			there.Close()
		}()
		if sent == "" {
			there.Close()
		}
		err := tls.Server(here, &tls.Config{}).Handshake()
		require.Error(t, err)
		s.logFailure(here, err)
		assert.Contains(t, out.String(), "level="+level+" ", sent)
	}
}
