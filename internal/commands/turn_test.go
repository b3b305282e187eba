//go:build !race

package commands_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/commands/commandstest"

	"golang.org/x/sys/unix"
)

// TestLongestTurn prints the longest turn of an event loop that each of many floods causes. It
// measures the CPU time of the thread, so a busy machine makes no difference. It runs without the
// race detector, whose own time would be measured too. It does not fail on a time, but requires
// that every call is answered.
func TestLongestTurn(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := commandstest.New(t)
	s.Fill(t, 100_000)
	for _, flood := range []struct {
		name string
		call []byte
	}{
		{"PING", []byte("PING\r\n")},
		{"CL.THROTTLE, new keys", nil},
		{"CL.THROTTLE, inline", []byte("CL.THROTTLE k 1 1 1\r\n")},
		{"INFO", []byte("INFO\r\n")},
		{"COMMAND DOCS", []byte("COMMAND DOCS\r\n")},
		{"CLIENT LIST", []byte("CLIENT LIST\r\n")},
		{"SCAN of 1000", []byte("SCAN 0 COUNT 1000\r\n")},
		{"EXISTS of 1000", commandstest.Encode(append([]string{"EXISTS"}, slices.Repeat([]string{"key:1"}, 1000)...))},
		{"ECHO of 1 MiB", commandstest.Encode([]string{"ECHO", strings.Repeat("x", 1<<20)})},
		{"EXISTS of a million", commandstest.Encode(append([]string{"EXISTS"}, slices.Repeat([]string{"k"}, 1<<20-1)...))},
		{"FLUSHALL", []byte("FLUSHALL\r\n")},
		{"SET of 100 KiB", commandstest.Encode([]string{"SET", "big", strings.Repeat("x", 100<<10)})},
		{"APPEND to 100 KiB", []byte("APPEND big x\r\n")},
		{"STRLEN of 100 KiB", []byte("STRLEN big\r\n")},
		{"SETRANGE in 100 KiB", []byte("SETRANGE big 5 x\r\n")},
		{"EXEC of INCR and SET", []byte("MULTI\r\nINCR n\r\nSET m x\r\nEXEC\r\n")},
	} {
		longest, turns := floodLoop(s, t, flood.call)
		t.Logf("%-22s longest of %5d turns: %v", flood.name, turns, longest)
	}
}

// floodLoop sends a call many times, read as an event loop reads it, and returns the longest turn. If
// call is nil, it sends calls on new keys.
func floodLoop(s *commandstest.Server, t *testing.T, call []byte) (longest time.Duration, turns int) {
	c := s.Connect()
	defer c.Close()
	stream := slices.Repeat(call, max(1, 64<<10/max(len(call), 1)))
	for i := 0; call == nil && i < 2000; i++ {
		stream = fmt.Appendf(stream, "CL.THROTTLE new:%d 15 1 1000000\r\n", i)
	}
	take := func(turn func()) {
		before := threadTime()
		turn()
		c.Session.Sent()
		longest = max(longest, threadTime()-before)
		turns++
	}
	for piece := range slices.Chunk(stream, 16<<10) {
		take(func() { c.Session.Feed(piece) })
		for c.Session.HasUnanswered() {
			if c.Session.State() != client.Running && !c.Session.HasMail() {
				<-c.Woken
			}
			take(c.Session.Resume)
		}
	}
	require.False(t, c.Session.Closing())
	return longest, turns
}

// threadTime returns the CPU time that this thread has used.
func threadTime() time.Duration {
	var used unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used)
	return time.Duration(used.Nano())
}
