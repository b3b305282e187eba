package background

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// New calls and calls that have yielded get slots alternately, each in the order of arrival.
func TestSlotsAlternateBetweenQueues(t *testing.T) {
	p := Slots{free: 1}
	p.acquire(context.Background(), newCalls)
	var order []string
	done := make(chan struct{})
	wait := func(name string, queue, n int) {
		go func() {
			p.acquire(context.Background(), queue)
			order = append(order, name)
			p.release()
			done <- struct{}{}
		}()
		for p.Waiting() != n {
			runtime.Gosched()
		}
	}
	n := 0
	for i := range 4 {
		n++
		wait(fmt.Sprint("resumed ", i), resumedCalls, n)
	}
	for i := range 2 {
		n++
		wait(fmt.Sprint("new ", i), newCalls, n)
	}
	p.release()
	for range n {
		<-done
	}
	require.Equal(t, []string{"new 0", "resumed 0", "new 1", "resumed 1", "resumed 2", "resumed 3"}, order)
	require.Equal(t, 1, p.free)
}

// A slot that is given at the moment at which its call is cancelled is neither lost nor given
// twice.
func TestSlotsAreNotLost(t *testing.T) {
	p := Slots{free: 2}
	var running atomic.Int32
	var all sync.WaitGroup
	for i := range 200 {
		ctx, cancel := context.WithCancel(context.Background())
		all.Go(func() {
			if p.acquire(ctx, i%2) {
				assert.LessOrEqual(t, running.Add(1), int32(2))
				runtime.Gosched()
				running.Add(-1)
				p.release()
			}
		})
		all.Go(cancel)
	}
	all.Wait()
	require.Equal(t, 2, p.free)
	require.Zero(t, p.Waiting())
}

// While a call awaits something, its slot is free, and event loops do not yield for it.
func TestAwaitFreesTheSlot(t *testing.T) {
	p := Slots{free: 1}
	require.True(t, p.Acquire(t.Context()))
	p.Await(func() {
		require.Equal(t, 1, p.Free())
		require.Zero(t, p.Busy.Load())
	})
	require.Zero(t, p.Free())
	require.EqualValues(t, 1, p.Busy.Load())
	require.Panics(t, func() { p.Await(func() { panic("a defect") }) })
	p.Release()
	require.Equal(t, 1, p.Free(), "the slot is lost")
}
