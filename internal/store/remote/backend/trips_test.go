package backend

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// trip sends a request whose reply takes a time, and returns whether the connection has failed.
func (s *stand) trip(took time.Duration) (failed bool) {
	s.fake.mu.Lock()
	s.before = func() { s.now.Add(int64(took)) }
	s.fake.mu.Unlock()
	_, failed = s.get()
	return failed
}

// Each pipeline counts once, with the time that it took. Opening a connection does not count.
func TestRoundTripsAreCounted(t *testing.T) {
	s := newStand(t)
	require.True(t, s.connect())
	_, count, sum := s.RoundTrips()
	assert.Zero(t, count)
	assert.Zero(t, sum)

	const us = time.Microsecond
	for _, took := range []time.Duration{0, 50 * us, 50*us + 1, 2000 * us, 2 * time.Second} {
		require.False(t, s.trip(took), took)
	}
	below, count, sum := s.RoundTrips()
	assert.Equal(t, map[float64]uint64{
		0.00005: 2, 0.0001: 3, 0.00025: 3, 0.0005: 3, 0.001: 3, 0.0025: 4, 0.005: 4, 0.01: 4, 0.025: 4, 0.05: 4,
		0.1: 4, 0.25: 4, 0.5: 4, 1: 4,
	}, below)
	assert.EqualValues(t, 5, count)
	assert.Equal(t, 2.002100001, sum)
}

// A pipeline without an answer has no duration. A pipeline that is answered with an error has one.
func TestRoundTripsWithoutReplyDoNotCount(t *testing.T) {
	s := newStand(t)
	require.True(t, s.connect())
	s.set("get", "-OOM command\r\n")
	require.False(t, s.trip(time.Millisecond))
	s.set("get", "$5\r\nto")
	require.True(t, s.trip(time.Millisecond))
	require.True(t, s.trip(time.Millisecond), "there is no connection")
	_, count, sum := s.RoundTrips()
	assert.EqualValues(t, 1, count)
	assert.Equal(t, 0.001, sum)
}

func TestCountingRoundTripsAllocatesNothing(t *testing.T) {
	var counted trips
	assert.Zero(t, testing.AllocsPerRun(100, func() { counted.add(1e6) }))
}

// slow is a connection on which each write and each read takes time.
type slow struct {
	net.Conn
	now *int64
}

func (s slow) Write(b []byte) (int, error) { *s.now += 1; return len(b), nil }
func (s slow) Read(b []byte) (int, error)  { *s.now += 10; return len(b), nil }

// A round trip lasts from the first written bytes to the last bytes read.
func TestSocketMeasuresFromFirstToLast(t *testing.T) {
	now := int64(100)
	conn := slow{now: &now}
	s := &socket{Conn: conn, raw: conn, now: func() int64 { return now }}
	for range 2 {
		began := now
		s.begin()
		for _, move := range []func([]byte) (int, error){s.Write, s.Write, s.Read, s.Read, s.Read} {
			_, err := move(make([]byte, 1))
			require.NoError(t, err)
		}
		assert.Equal(t, []int64{began, began + 12, began + 32}, []int64{s.sent, s.received, s.ended})
	}
}

// A round trip ends with the last reply, which here is longer than go-redis reads at once.
func TestRoundTripEndsWithTheLastReply(t *testing.T) {
	s := newStand(t)
	s.config.Now = func() int64 { return s.now.Add(1) }
	require.True(t, s.connect())
	s.set("get", bulk(strings.Repeat("v", 1<<20)))
	require.False(t, s.trip(0))
	socket := s.connections[place{}].socket
	assert.Greater(t, socket.ended, socket.received)
	_, count, sum := s.RoundTrips()
	assert.EqualValues(t, 1, count)
	assert.Equal(t, float64(socket.ended-socket.sent)/1e9, sum)
}
