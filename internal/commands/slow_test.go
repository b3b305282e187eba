package commands

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A short call beside the loops waits for a slice of the work of those that take long, not for the whole of it, however many they are.
func TestLongCallsGiveWay(t *testing.T) {
	s := newStill(t)
	const long = 6
	words := slices.Repeat([]string{"k"}, 400_000)
	var callers []*caller
	for range maxSlow() {
		s.instance.takeSlow()
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
	return len(p.queues[newcomers])+len(p.queues[begun]) == n
}

// Places are given to those who have not begun and to those who have by turns, in the order in which they came.
func TestPlacesAreGivenByTurns(t *testing.T) {
	p := slowPlaces{free: 1}
	p.take(newcomers)
	var order []string
	done := make(chan struct{})
	wait := func(name string, queue, n int) {
		go func() {
			p.take(queue)
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
