package backend

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/store/remote/combine"
)

// reading is a batch that reads a key.
func reading() (*combine.Batch, *combine.Request) {
	r := &combine.Request{Kind: combine.Read, Parts: []combine.Part{{Key: "k"}}}
	return &combine.Batch{Requests: []*combine.Request{r}}, r
}

// stall lets the server reply to nothing until the returned function is called.
func (s *stand) stall() (resume func()) {
	stalled := make(chan struct{})
	s.fake.mu.Lock()
	s.before = func() { <-stalled }
	s.fake.mu.Unlock()
	return func() { close(stalled) }
}

// A caller that has no time makes a batch if the server replies soon. Otherwise Do goes on with it, and sends nothing
// again.
func TestTryGivesUp(t *testing.T) {
	s := newStand(t)
	require.True(t, s.connect())
	for range 3 {
		require.Eventually(t, func() bool { // on a busy machine, a reply may take long
			batch, r := reading()
			soon := s.Try(batch)
			if !soon {
				s.Do(batch)
			}
			return assert.Equal(t, combine.Done, r.Reply.Status) && soon
		}, time.Minute, time.Millisecond)

		sent, resume := s.called("get"), s.stall()
		batch, r := reading()
		require.False(t, s.Try(batch))
		require.Equal(t, combine.Unsent, r.Reply.Status, "there is no reply yet")
		time.AfterFunc(time.Millisecond, resume)
		s.Do(batch)
		require.Equal(t, combine.Done, r.Reply.Status)
		require.Equal(t, "v", string(r.Parts[0].Value.Bytes))
		require.False(t, batch.Failed)
		require.Equal(t, sent+1, s.called("get"))
	}
}

// Whoever goes on with a batch whose connection is lost meanwhile knows that it was sent.
func TestConnectionIsLostAfterTry(t *testing.T) {
	s := newStand(t)
	require.True(t, s.connect())
	resume := s.stall()
	batch, r := reading()
	require.False(t, s.Try(batch))
	s.Close()
	s.Do(batch)
	resume()
	assert.True(t, batch.Failed)
	assert.Equal(t, combine.Unknown, r.Reply.Status)
}

// What may take long is left to Do: connecting, reading the clock after a pause, authenticating again, long pipelines.
func TestTryBeginsNothingLong(t *testing.T) {
	s := newStand(t)
	connect := &combine.Batch{Connect: true}
	require.False(t, s.Try(connect))
	s.Do(connect)
	require.False(t, connect.Failed)

	c := s.connections[place{}]
	command := [][]byte{[]byte("get"), make([]byte, maxHasty)}
	long := &combine.Batch{Requests: []*combine.Request{{Kind: combine.Command, Command: command}}}
	for name, batch := range map[string]func() *combine.Batch{
		"a pause": func() *combine.Batch {
			s.now.Add(stale + 1)
			s.clock.Add(stale + 1)
			b, _ := reading()
			return b
		},
		"a password":      func() *combine.Batch { c.outdated.Store(true); b, _ := reading(); return b },
		"a long pipeline": func() *combine.Batch { return long },
	} {
		b, gets := batch(), s.called("get")
		assert.False(t, s.Try(b), name)
		assert.Equal(t, gets, s.called("get"), name)
		s.Do(b)
		assert.False(t, b.Failed, name)
		assert.Equal(t, combine.Done, b.Requests[0].Reply.Status, name)
	}
}

// An exchange ends if there is no reply within the time of silence, and the timer stops when there is no exchange.
func TestSilenceEndsAnExchange(t *testing.T) {
	s := newStand(t)
	require.True(t, s.connect())
	s.config.Silence = 20 * time.Millisecond
	resume := s.stall()
	reply, failed := s.get()
	resume()
	assert.True(t, failed)
	assert.Equal(t, combine.Unknown, reply.Status)
	require.Eventually(t, func() bool { return !s.watch.running.Load() }, time.Minute, time.Millisecond)
}

// A connection on which the server says more than it was asked for is not used any more.
func TestRepliesToNothing(t *testing.T) {
	s := newStand(t)
	require.True(t, s.connect())
	s.set("get", "$1\r\nv\r\n+OK\r\n")
	reply, failed := s.get()
	assert.Equal(t, combine.Done, reply.Status)
	assert.True(t, failed)
}
