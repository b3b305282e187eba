package value_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/commands/commandstest"
)

// Reading or changing a part of a value copies as many bytes as the part has, and not the whole
// value, while the shard is locked.
func TestPartOfValueCostsItsLength(t *testing.T) {
	s := commandstest.New(t)
	c := s.Connect()
	c.Session.Feed(commandstest.Encode([]string{"SET", "big", strings.Repeat("x", 1<<20-64<<10)}))
	c.Session.Sent()
	c.Do(t, "APPEND big 0123456789") // moves the value to a place where it can grow
	for _, call := range []string{"STRLEN big", "GETRANGE big 500000 500009", "SUBSTR big 0 -900000",
		"SETRANGE big 500000 0123456789", "APPEND big 0123456789"} {
		const times = 100
		before := s.CopiedBytes()
		bytes := commandstest.Allocated(func() {
			c.Session.Feed([]byte(strings.Repeat(call+"\r\n", times)))
			for c.Session.More() {
				c.Session.Sent()
				c.Session.Resume()
			}
			c.Session.Sent()
		})
		most := int64(20)
		if strings.HasPrefix(call, "SUBSTR") {
			most = 100_000
		}
		require.LessOrEqual(t, s.CopiedBytes()-before, 10*times*most, call)
		require.Less(t, bytes, times*(1000+2*int(most)), call)
	}
}

// Calls of many megabytes are made outside the event loop: MSET without a copy of its words, and
// MGET as soon as the length of its reply is known.
func TestLongValuesAreCopiedInBackground(t *testing.T) {
	s := commandstest.New(t)
	c := s.Connect()
	mSet, mGet := []string{"MSET"}, []string{"MGET", "none"}
	for i := range 60 {
		key := fmt.Sprint("key", i)
		if mGet = append(mGet, key); i < 14 {
			mSet = append(mSet, key, strings.Repeat("x", commandstest.Mebibyte))
		}
	}
	input := commandstest.Encode(mSet)
	before, last := input[:len(input)-10], input[len(input)-10:]
	for piece := range slices.Chunk(before, 16<<10) {
		require.NoError(t, c.Send(piece))
	}
	moved := s.CopiedBytes()
	s.Instance.Background.Acquire(context.Background())
	require.Less(t, commandstest.Allocated(func() { c.Session.Feed(last); last = nil }), 100_000)
	require.True(t, c.Session.State() != client.Running)
	require.Equal(t, moved, s.CopiedBytes(), "written in the turn")
	s.Instance.Background.Release()
	c.Settle()
	require.Equal(t, "+OK\r\n", c.Output())
	for i := 14; i < 60; i++ {
		require.Equal(t, ":1\r\n", c.Do(t, fmt.Sprintf("COPY key%d key%d", i%14, i)))
	}
	s.Instance.Background.Acquire(context.Background())
	hits := s.Instance.Stats.Hits.Load()
	c.Session.Feed(commandstest.Encode(mGet))
	require.True(t, c.Session.State() != client.Running)
	require.Less(t, c.Session.BufferSizes.Load()>>32, int64(4*commandstest.Mebibyte))
	s.Instance.Background.Release()
	n, _ := commandstest.CountReplies(c, t, nil, "\r\n$1048576\r\n")
	require.Equal(t, 60, n)
	require.Equal(t, hits+60, s.Instance.Stats.Hits.Load())
}

// GET copies a large value once, into the output, and hardly any of it while its shard is locked.
func TestLargeValueIsCopiedOnce(t *testing.T) {
	s := commandstest.New(t)
	c := s.Connect()
	commandstest.CountReplies(
		c,
		t,
		commandstest.Encode([]string{"SET", "big", strings.Repeat("x", commandstest.Mebibyte)}),
		"+OK",
	)
	before := s.CopiedBytes()
	hits := s.Instance.Stats.Hits.Load()
	get := commandstest.Encode([]string{"GET", "big"})
	bytes := commandstest.Allocated(func() {
		c.Session.Feed(get)
		require.Greater(t, len(c.Session.Output()), commandstest.Mebibyte)
		c.Session.Sent()
	})
	require.Less(t, bytes, commandstest.Mebibyte/2, "the output's memory is not reused")
	require.LessOrEqual(t, s.CopiedBytes()-before, int64(10*4<<10))
	require.Equal(t, hits+10, s.Instance.Stats.Hits.Load())
}
