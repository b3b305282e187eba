package server

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

// Who has work to do does not give way; as soon as one waits for its peer that one does, and no other.
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
