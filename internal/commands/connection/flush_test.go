package connection

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// All calls that ask while a flush runs share the next flush, which begins after it.
func TestFlushesAreShared(t *testing.T) {
	var f flushes
	began, end := make(chan int), make(chan error)
	runs := 0
	run := func() error {
		runs++
		began <- runs
		return <-end
	}
	first := f.begin(run)
	require.Equal(t, 1, <-began)
	second, third := f.begin(run), f.begin(run)
	require.Same(t, second, third)
	require.NotSame(t, first, second, "a flush that has begun is too early")
	full := errors.New("disk full")
	end <- full
	<-first.done
	require.Equal(t, full, first.err)
	require.Equal(t, 2, <-began)
	end <- nil
	<-second.done
	require.NoError(t, second.err)
	fourth := f.begin(run)
	require.Equal(t, 3, <-began)
	end <- nil
	<-fourth.done
}
