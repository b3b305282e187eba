package commands

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
)

// Reading or changing a part of a value costs the length of the part, not of the value, in bytes
// that are copied while the shard is locked.
func TestPartOfValueCostsItsLength(t *testing.T) {
	s := newServer(t)
	c := s.dial()
	c.session.Feed(encode([]string{"SET", "big", strings.Repeat("x", 1<<20-64<<10)}))
	c.session.Sent()
	c.do(t, "APPEND big 0123456789") // which moves the value to where it has capacity to grow
	for _, call := range []string{"STRLEN big", "GETRANGE big 500000 500009", "SUBSTR big 0 -900000",
		"SETRANGE big 500000 0123456789", "APPEND big 0123456789"} {
		const times = 100
		before := s.copiedBytes()
		bytes := allocated(func() {
			c.session.Feed([]byte(strings.Repeat(call+"\r\n", times)))
			for c.session.More() {
				c.session.Sent()
				c.session.Resume()
			}
			c.session.Sent()
		})
		most := int64(20)
		if strings.HasPrefix(call, "SUBSTR") {
			most = 100_000
		}
		require.LessOrEqual(t, s.copiedBytes()-before, 10*times*most, call)
		require.Less(t, bytes, times*(1000+2*int(most)), call)
	}
}

// copiedBytes returns how many bytes of values the store has copied while they were locked.
func (s *testServer) copiedBytes() (bytes int64) {
	for _, u := range store.UsageOf(s.instance.Store) {
		bytes += u.Copied
	}
	return bytes
}

// Calls of many megabytes are made outside the event loop: MSET without a copy of its words, and
// MGET as soon as the length of its reply is known.
func TestLongValuesAreCopiedInBackground(t *testing.T) {
	s := newServer(t)
	c := s.dial()
	mSet, mGet := []string{"MSET"}, []string{"MGET", "none"}
	for i := range 60 {
		key := fmt.Sprint("key", i)
		if mGet = append(mGet, key); i < 14 {
			mSet = append(mSet, key, strings.Repeat("x", mebibyte))
		}
	}
	input := encode(mSet)
	before, last := input[:len(input)-10], input[len(input)-10:]
	for piece := range slices.Chunk(before, 16<<10) {
		require.NoError(t, c.Send(piece))
	}
	moved := s.copiedBytes()
	s.instance.Background.Acquire(context.Background())
	require.Less(t, allocated(func() { c.session.Feed(last); last = nil }), 100_000)
	require.True(t, c.session.Parked.Load())
	require.Equal(t, moved, s.copiedBytes(), "written in the turn")
	s.instance.Background.Release()
	c.settle()
	require.Equal(t, "+OK\r\n", c.output())
	for i := 14; i < 60; i++ {
		require.Equal(t, ":1\r\n", c.do(t, fmt.Sprintf("COPY key%d key%d", i%14, i)))
	}
	s.instance.Background.Acquire(context.Background())
	hits := s.instance.Stats.Hits.Load()
	c.session.Feed(encode(mGet))
	require.True(t, c.session.Parked.Load())
	require.Less(t, c.session.BufferSizes.Load()>>32, int64(4*mebibyte))
	s.instance.Background.Release()
	n, _ := c.countReplies(t, nil, "\r\n$1048576\r\n")
	require.Equal(t, 60, n)
	require.Equal(t, hits+60, s.instance.Stats.Hits.Load())
}

// GET copies a large value once, into the output, and hardly any of it while its shard is locked.
func TestLargeValueIsCopiedOnce(t *testing.T) {
	s := newServer(t)
	c := s.dial()
	c.countReplies(t, encode([]string{"SET", "big", strings.Repeat("x", mebibyte)}), "+OK")
	before := s.copiedBytes()
	hits := s.instance.Stats.Hits.Load()
	get := encode([]string{"GET", "big"})
	bytes := allocated(func() {
		c.session.Feed(get)
		require.Greater(t, len(c.session.Output()), mebibyte)
		c.session.Sent()
	})
	require.Less(t, bytes, mebibyte/2, "the output's memory is not reused")
	require.LessOrEqual(t, s.copiedBytes()-before, int64(10*4<<10))
	require.Equal(t, hits+10, s.instance.Stats.Hits.Load())
}

// allocated returns about how many bytes a function allocates.
func allocated(f func()) int {
	const times = 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		f()
	}
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc-before.TotalAlloc) / times
}
