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

// Calls that have not begun and calls that have get places in turns, in the order of arrival.
func TestPlacesAreGivenByTurns(t *testing.T) {
	p := Places{free: 1}
	p.take(context.Background(), fresh)
	var order []string
	done := make(chan struct{})
	wait := func(name string, queue, n int) {
		go func() {
			p.take(context.Background(), queue)
			order = append(order, name)
			p.leave()
			done <- struct{}{}
		}()
		for p.Waiting() != n {
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
		wait(fmt.Sprint("new ", i), fresh, n)
	}
	p.leave()
	for range n {
		<-done
	}
	require.Equal(t, []string{"new 0", "begun 0", "new 1", "begun 1", "begun 2", "begun 3"}, order)
	require.Equal(t, 1, p.free)
}

// A place that is given at the moment at which its client leaves is neither lost nor given twice.
func TestPlacesAreNotLost(t *testing.T) {
	p := Places{free: 2}
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
	require.Zero(t, p.Waiting())
}
