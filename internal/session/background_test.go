package session_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/background"
	"cellserver/internal/client"
	"cellserver/internal/session/sessiontest"
)

// A short call outside the event loops waits for a slice of the work of long calls, not for all of
// it, however many there are.
func TestLongBackgroundCallsYield(t *testing.T) {
	for range 5 { // on a busy machine, all calls may end before the test looks
		if shortCallsEndFirst(t) {
			return
		}
	}
	t.Error("long calls ended before the short ones")
}

// shortCallsEndFirst makes long and short calls at once, and reports whether no long call ended before the short ones.
func shortCallsEndFirst(t *testing.T) bool {
	s := newServer(t)
	const long = 6
	words := slices.Repeat([]string{"k"}, 400_000)
	var callers []*sessiontest.Client
	for range background.MaxSlots() {
		s.Instance.Background.Acquire(context.Background())
	}
	for _, name := range []string{"DEL", "UNLINK", "EXISTS", "TOUCH", "MGET", "DEL"} {
		callers = append(callers, s.Connect())
		callers[len(callers)-1].Session.Feed(encode(append([]string{name}, words...)))
	}
	for _, call := range []string{"RANDOMKEY", "SCAN 0", "KEYS *"} {
		callers = append(callers, s.Connect())
		callers[len(callers)-1].Session.Feed([]byte(call + "\r\n"))
	}
	for s.Instance.Background.Waiting() != len(callers) {
		runtime.Gosched()
	}
	for range background.MaxSlots() {
		s.Instance.Background.Release()
	}
	for _, c := range callers[long:] {
		<-c.Woken
	}
	first := !slices.ContainsFunc(callers[:long], func(c *sessiontest.Client) bool { return c.Session.HasMail() })
	for _, c := range callers {
		c.Settle()
		require.NotEmpty(t, c.Output())
	}
	return first
}

// A call of a client that disconnects before the call begins is not made, and frees its place in
// the queue and its memory. Until then its words count as memory of the client.
func TestCallsOfDisconnectedClientsAreNotMade(t *testing.T) {
	s := newServer(t)
	watcher := s.Connect()
	for range background.MaxSlots() {
		require.True(t, s.Instance.Background.Acquire(context.Background()))
	}
	held := s.Instance.Clients.HeldBytes
	long := slices.Repeat([]string{"0123456789abcdef"}, 5000)
	calls := []func(key string) []byte{
		func(key string) []byte { return encode(append(append([]string{"DEL"}, long...), key)) },
		func(key string) []byte { return encode(append(append([]string{"MSET"}, long...), "new "+key, "value")) },
		func(string) []byte { return encode([]string{"KEYS", strings.Repeat("*a", 500)}) },
		func(key string) []byte {
			return slices.Concat([]byte("MULTI\r\n"), bytes.Repeat(encode([]string{"DEL", key}), 2000), []byte("EXEC\r\n"))
		},
	}
	const each = 25
	for i := range each * len(calls) {
		require.Equal(t, "+OK\r\n", watcher.Do(t, fmt.Sprintf("SET key:%d there", i)))
	}
	before := held()
	var callers []*sessiontest.Client
	for i := range each * len(calls) {
		c := s.Connect()
		c.Session.Feed(calls[i%len(calls)](fmt.Sprint("key:", i)))
		for c.Session.More() {
			c.Session.Resume()
		}
		require.True(t, c.Session.State() != client.Running, i%len(calls))
		callers = append(callers, c)
	}
	for s.Instance.Background.Waiting() != len(callers) {
		runtime.Gosched()
	}
	require.Greater(t, held()-before, int64(2*each*5000*16*4), "the words of waiting calls are not counted")
	for _, c := range callers {
		c.Session.Close()
	}
	removed := func() bool {
		return s.Instance.Background.Waiting() == 0 && s.Instance.Background.Busy.Load() == int32(background.MaxSlots())
	}
	require.Eventually(t, removed, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return held() == before }, time.Minute, time.Millisecond)
	for range background.MaxSlots() {
		s.Instance.Background.Release()
	}
	require.Equal(t, background.MaxSlots(), s.Instance.Background.Free())
	require.Equal(t, fmt.Sprintf(":%d\r\n", len(callers)), watcher.Do(t, "DBSIZE"), "a call was made")
}
