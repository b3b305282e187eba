package server

import (
	"crypto/tls"
	"io"
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

// full is a room in which everybody has work to do.
func full(t *testing.T) (r *room, inside []*handshake) {
	r = &room{}
	r.open()
	for range maxHandshakes {
		here, there := net.Pipe()
		t.Cleanup(func() { here.Close(); there.Close() })
		w := newWire(here, r)
		h, ok := r.enter(w, nil)
		require.True(t, ok)
		w.waits.Store(false)
		inside = append(inside, h)
	}
	return r, inside
}

// Who has work to do does not give way; as soon as one waits for its peer that one does, and no
// other.
func TestWhoComesWaitsForOneThatWaits(t *testing.T) {
	r, inside := full(t)
	assert.False(t, r.giveWay())
	entered, ended := make(chan bool), make(chan struct{})
	come := func() {
		here, there := net.Pipe()
		t.Cleanup(func() { here.Close(); there.Close() })
		_, ok := r.enter(newWire(here, r), ended)
		entered <- ok
	}
	go come()
	select {
	case <-entered:
		require.Fail(t, "there is no place")
	case <-time.After(20 * time.Millisecond):
	}
	stalled := inside[7]
	stalled.wire.waits.Store(true)
	_, err := stalled.socket.Read(make([]byte, 1)) // which its end interrupts
	require.ErrorIs(t, err, io.ErrClosedPipe)
	r.leave(stalled)
	assert.True(t, <-entered)
	assert.Equal(t, maxHandshakes, r.count())

	inside[8].wire.waits.Store(true)
	assert.True(t, r.giveWay())
	r.leave(inside[8])
	go come()
	assert.True(t, <-entered)
	go come() // the two who came wait for their peers: one of them gives way, and does not leave
	select {
	case <-entered:
		require.Fail(t, "there is no place")
	case <-time.After(20 * time.Millisecond):
	}
	assert.Equal(t, maxHandshakes-1, r.count(), "one gives way for one that comes")
	close(ended)
	assert.False(t, <-entered)
}

// A connection whose hands are shaken is counted once among those that have not logged in: as a
// client, not as a handshake too. Otherwise it may be cut to make room for itself.
func TestAHandshakeIsNotCountedWithItsClient(t *testing.T) {
	for _, transport := range []Transport{DefaultTransport, Goroutines} {
		data := &signed{Store: memory.New(memory.Options{})}
		t.Cleanup(func() { data.Close() })
		s := newServerOn(t, transport, data, func(s *commands.Settings) {
			// enough for a handshake, or a client, and not for both
			s.Password, s.MaxUnauthenticatedMemory = "secret", client.MemoryLimit{Bytes: 44 << 10}
		})
		var crowded atomic.Bool
		data.signs = func() { crowded.Store(s.instance.Unauthenticated().Overloaded()) }
		authority := certs.New(t)
		own := authority.Issue(t, "server")
		pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
		require.NoError(t, err)
		config := &tls.Config{Certificates: []tls.Certificate{pair}}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go func() {
			_ = s.ServeTLS(listener, Handshakes{func() *tls.Config { return config }, time.Minute})
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
		require.False(t, crowded.Load(), "nothing was cut")
	}
}
