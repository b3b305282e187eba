package session

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Coroutines that no session has needed between two trims are stopped. When there is no session,
// all are stopped.
func TestIdleCoroutinesAreStopped(t *testing.T) {
	stopped := 0
	in := new(Instance)
	cs := &in.coroutines
	cs.addUser()
	var idle []*coroutine
	for range 10 {
		idle = append(idle, &coroutine{stop: func() { stopped++ }})
	}
	cs.add(idle)
	cs.trim() // they were added since the previous trim
	require.Zero(t, stopped)

	taken := []*coroutine{in.takeCoroutine(), in.takeCoroutine(), in.takeCoroutine()}
	cs.add(taken[:1])
	cs.trim()
	require.Equal(t, 7, stopped)
	cs.add(taken[1:])
	require.Len(t, cs.idle, 3)
	cs.trim()
	require.Equal(t, 8, stopped, "two were added since")

	cs.removeUser()
	require.Equal(t, 10, stopped)
	cs.trim()
	require.Empty(t, cs.idle)
}
