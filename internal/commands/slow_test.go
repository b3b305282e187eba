package commands

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A short call beside the loops waits for a slice of the work of those that take long, not for the
// whole of it, however many they are.
func TestLongCallsGiveWay(t *testing.T) {
	s := newStill(t)
	const long = 6
	words := slices.Repeat([]string{"k"}, 400_000)
	var callers []*caller
	for range maxSlow() {
		s.instance.takeSlow(context.Background())
	}
	for _, name := range []string{"DEL", "UNLINK", "EXISTS", "TOUCH", "MGET", "DEL"} {
		callers = append(callers, s.dial())
		callers[len(callers)-1].session.Feed(encode(append([]string{name}, words...)))
	}
	for _, call := range []string{"RANDOMKEY", "SCAN 0", "KEYS *"} {
		callers = append(callers, s.dial())
		callers[len(callers)-1].session.Feed([]byte(call + "\r\n"))
	}
	for !s.instance.slow.allWait(len(callers)) {
		runtime.Gosched()
	}
	for range maxSlow() {
		s.instance.leaveSlow()
	}
	for _, c := range callers[long:] {
		<-c.woken
	}
	for i, c := range callers[:long] {
		require.False(t, c.session.Called(), "long call %d was done before short ones", i)
	}
	for _, c := range callers {
		c.settle()
		require.NotEmpty(t, c.output())
	}
}

// allWait says whether so many wait for a place.
func (p *slowPlaces) allWait(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queues[newcomers].Len()+p.queues[begun].Len() == n
}

// Places are given to those who have not begun and to those who have by turns, in the order in
// which they came.
func TestPlacesAreGivenByTurns(t *testing.T) {
	p := slowPlaces{free: 1}
	p.take(context.Background(), newcomers)
	var order []string
	done := make(chan struct{})
	wait := func(name string, queue, n int) {
		go func() {
			p.take(context.Background(), queue)
			order = append(order, name)
			p.leave()
			done <- struct{}{}
		}()
		for !p.allWait(n) {
			runtime.Gosched()
		}
	}
	n := 0
	for i := range 4 {
		n++
		wait(fmt.Sprint("begun ", i), begun, n)
	}
	for i := range 2 {
		n++
		wait(fmt.Sprint("new ", i), newcomers, n)
	}
	p.leave()
	for range n {
		<-done
	}
	require.Equal(t, []string{"new 0", "begun 0", "new 1", "begun 1", "begun 2", "begun 3"}, order)
	require.Equal(t, 1, p.free)
}

// Calls of clients that leave before they begin are not made, and leave nothing: neither in the
// queue nor in what clients hold. While they wait their words count.
func TestCallsOfClientsThatHaveGone(t *testing.T) {
	s := newStill(t)
	watcher := s.dial()
	for range maxSlow() {
		require.True(t, s.instance.takeSlow(context.Background()))
	}
	held := s.instance.clients.HeldBytes
	long := slices.Repeat([]string{"0123456789abcdef"}, 5000)
	calls := []func(key string) []byte{
		func(key string) []byte { return encode(append(append([]string{"DEL"}, long...), key)) },
		func(key string) []byte { return encode(append(append([]string{"MSET"}, long...), "new "+key, "value")) },
		func(string) []byte { return encode([]string{"KEYS", strings.Repeat("*a", 500)}) },
		func(key string) []byte { return transaction(times(2000, "DEL", key)) },
	}
	const each = 25
	for i := range each * len(calls) {
		require.Equal(t, "+OK\r\n", watcher.say(t, fmt.Sprintf("SET key:%d there", i)))
	}
	before := held()
	var callers []*caller
	for i := range each * len(calls) {
		c := s.dial()
		c.session.Feed(calls[i%len(calls)](fmt.Sprint("key:", i)))
		for c.session.More() {
			c.session.Resume()
		}
		require.True(t, c.session.parked, i%len(calls))
		callers = append(callers, c)
	}
	for !s.instance.slow.allWait(len(callers)) {
		runtime.Gosched()
	}
	require.Greater(t, held()-before, int64(2*each*5000*16*longCallBytes), "their words count")
	for _, c := range callers {
		c.session.Close()
	}
	haveGone := func() bool { return s.instance.slow.allWait(0) && s.instance.slow.about.Load() == int32(maxSlow()) }
	require.Eventually(t, haveGone, time.Minute, time.Millisecond)
	require.Equal(t, before, held())
	for range maxSlow() {
		s.instance.leaveSlow()
	}
	require.Equal(t, maxSlow(), s.instance.slow.free)
	require.Equal(t, fmt.Sprintf(":%d\r\n", len(callers)), watcher.say(t, "DBSIZE"), "none was made")
}

// A place that is given at the moment at which its client leaves is not lost, and none is given
// twice.
func TestPlacesAreNotLost(t *testing.T) {
	p := slowPlaces{free: 2}
	var running atomic.Int32
	var all sync.WaitGroup
	for i := range 200 {
		ctx, cancel := context.WithCancel(context.Background())
		all.Go(func() {
			if p.take(ctx, i%2) {
				assert.LessOrEqual(t, running.Add(1), int32(2))
				runtime.Gosched()
				running.Add(-1)
				p.leave()
			}
		})
		all.Go(cancel)
	}
	all.Wait()
	require.Equal(t, 2, p.free)
	require.True(t, p.allWait(0))
}
