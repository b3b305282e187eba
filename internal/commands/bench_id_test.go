package commands_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"cellserver/internal/commands/commandstest"
	"cellserver/internal/session/sessiontest"
)

// BenchmarkID is BenchmarkSession for calls that each have their own ID, as a client sends them that may repeat
// them.
func BenchmarkID(b *testing.B) {
	call := string(commandstest.Encode(strings.Fields(
		"CL.THROTTLE k:000000000000 15 30 60 1 ID 0123456789abcdef01234567")))
	for _, depth := range []int{1, 64} {
		b.Run(fmt.Sprintf("P=%d", depth), func(b *testing.B) {
			b.ReportAllocs()
			repeatWithIDs(commandstest.New(b).Connect(), b.N, depth, call)
		})
	}
}

// repeatWithIDs is repeat for calls with an ID, which differs in each call.
func repeatWithIDs(c *sessiontest.Client, times, depth int, call string) {
	const mask, zeros = 0x0f0f0f0f0f0f0f0f, 0x3030303030303030
	input := []byte(strings.Repeat(call, depth))
	key, id := strings.Index(call, "k:0")+len("k:0000"), strings.Index(call, "0123456789abcdef")
	next, n := uint32(1), uint64(0)
	for range times / depth {
		for at := 0; at < len(input); at += len(call) {
			next, n = next*1664525+1013904223, n+0x9e3779b97f4a7c15
			binary.LittleEndian.PutUint64(input[at+key:], uint64(next>>16)*0x9e3779b97f4a7c15&mask|zeros)
			binary.LittleEndian.PutUint64(input[at+id:], n&mask|zeros)
			binary.LittleEndian.PutUint64(input[at+id+8:], n>>4&mask|zeros)
		}
		c.Session.Feed(input)
		c.Session.Sent()
	}
}
