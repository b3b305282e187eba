package commands_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/session/sessiontest"
	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
)

// CL.ALL does not allocate for up to eight limiters whose keys exist, including leases and forced
// quantities. Neither does CL.TAKE for a policy with up to eight limits.
func TestAllAllocatesNothing(t *testing.T) {
	for _, call := range []string{
		"CL.ALL 2 THROTTLE user123 15 30 60 1 FIXED user123:day 1000000 86400 1",
		"CL.ALL 8" + numbered(" FIXED k%d 1000000 86400 1", 8),
		"CL.ALL 3 ACQUIRE jobs 2 60 holder 1 THROTTLE user123 15 30 60 20 FORCE SLIDINGLOG user123:log 10 60 1",
		"CL.ALL 2 ACQUIRE jobs 2 60 holder 1 FIXED user123:day 0 60 1",
		"CL.TAKE user123 bench", "CL.TAKE user123 login 1 FORCE", "CL.TAKE user123 bench2", "CL.TAKE user123 bench2 2 FORCE",
	} {
		s := commandstest.New(t)
		c := s.Connect()
		input := commandstest.Encode(strings.Fields(call))
		serve := func() {
			s.Clock.Advance(time.Millisecond)
			c.Session.Feed(input)
			c.Session.Sent()
		}
		for range 30 {
			serve()
		}
		require.Zero(t, testing.AllocsPerRun(100, serve), call)
	}
}

func numbered(format string, n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, format, i)
	}
	return out.String()
}

func BenchmarkSession(b *testing.B) {
	for _, depth := range []int{1, 64} {
		b.Run(fmt.Sprintf("P=%d", depth), func(b *testing.B) {
			b.ReportAllocs()
			repeat(commandstest.New(b).Connect(), b.N, depth,
				"*6\r\n$11\r\nCL.THROTTLE\r\n$14\r\nk:000000000000\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n$1\r\n1\r\n")
		})
	}
}

// BenchmarkTracked is BenchmarkSession with --dir: as many calls as a core makes in a second, and then
// a pass, because there is a pass every second.
func BenchmarkTracked(b *testing.B) {
	b.Run("P=64", func(b *testing.B) {
		b.ReportAllocs()
		m := memstore.New(memstore.Options{Clock: store.NewStillClock(commandstest.Start), SweepEvery: -1})
		m.TrackChanges()
		s, err := commandstest.NewOver(b, m, func(*commands.Settings) {})
		require.NoError(b, err)
		c := s.Connect()
		var sum uint32
		for left := b.N; left > 0; left -= 1 << 20 {
			repeat(c, min(left, 1<<20), 64,
				"*6\r\n$11\r\nCL.THROTTLE\r\n$14\r\nk:000000000000\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n$1\r\n1\r\n")
			require.NoError(b, m.Pass(func(entries []byte) error {
				sum = crc32.Update(sum, castagnoli, entries) // as the journal does
				return nil
			}))
		}
	})
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// BenchmarkValues adds commands other than CL.THROTTLE to the profile by which builds are
// optimized.
func BenchmarkValues(b *testing.B) {
	for _, name := range []string{"INCR", "GET"} {
		for _, depth := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/P=%d", name, depth), func(b *testing.B) {
				call := "\r\n$14\r\nk:000000000000\r\n"
				c := commandstest.New(b).Connect()
				repeat(c, 1<<17, 64, "*2\r\n$4\r\nINCR"+call) // nearly all keys exist
				b.ResetTimer()
				repeat(c, b.N, depth, fmt.Sprintf("*2\r\n$%d\r\n%s", len(name), name)+call)
			})
		}
	}
}

// repeat makes a call many times on 65536 keys, in an order that no cache predicts. Writing the
// keys into the calls costs about 4 ns each.
func repeat(c *sessiontest.Client, times, depth int, call string) {
	input := []byte(strings.Repeat(call, depth))
	digits := strings.Index(call, "k:0") + len("k:0000")
	key := uint32(1)
	for range times / depth {
		for at := digits; at < len(input); at += len(call) {
			key = key*1664525 + 1013904223
			binary.LittleEndian.PutUint64(input[at:], uint64(key>>16)*0x9e3779b97f4a7c15&0x0f0f0f0f0f0f0f0f|0x3030303030303030)
		}
		c.Session.Feed(input)
		c.Session.Sent()
	}
}

// repeatSame makes a call again and again, with the same words each time.
func repeatSame(c *sessiontest.Client, times, depth int, call string) {
	input := []byte(strings.Repeat(call, depth))
	for range times / depth {
		c.Session.Feed(input)
		c.Session.Sent()
	}
}
