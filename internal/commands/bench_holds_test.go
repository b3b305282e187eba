package commands_test

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"cellserver/internal/commands/commandstest"
	"cellserver/internal/session/sessiontest"
)

// BenchmarkHolds compares HOLD and SETTLE with two calls of CL.FIXED with ID. Each hold is alone on its key, and in its
// shard: a shard that gave back the memory of its last hold would do so for each pair.
func BenchmarkHolds(b *testing.B) {
	for name, calls := range map[string][2]string{
		"ID":    {"CL.FIXED k 1000000000 3600 3 ID a00000000", "CL.FIXED k 1000000000 3600 3 ID b00000000"},
		"holds": {"CL.FIXED k 1000000000 3600 3 HOLD a00000000 60", "CL.FIXED k 1000000000 3600 1 SETTLE a00000000"},
	} {
		for _, depth := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/P=%d", name, depth), func(b *testing.B) {
				b.ReportAllocs()
				repeatPairs(commandstest.New(b).Connect(), b.N, depth, calls)
			})
		}
	}
}

// repeatPairs is repeat for pairs of calls. The digits of their IDs differ in each pair.
func repeatPairs(c *sessiontest.Client, times, depth int, calls [2]string) {
	pair := ""
	for _, call := range calls {
		pair += string(commandstest.Encode(strings.Fields(call)))
	}
	input := []byte(strings.Repeat(pair, max(depth/2, 1)))
	ids := regexp.MustCompile("[ab]00000000").FindAllIndex(input, -1)
	n := uint64(0)
	for range times / max(depth/2, 1) {
		for i, id := range ids {
			n += uint64(1 - i%2)
			binary.LittleEndian.PutUint64(input[id[0]+1:], n*0x9e3779b97f4a7c15&0x0f0f0f0f0f0f0f0f|0x3030303030303030)
		}
		for c.Session.Feed(input); c.Session.More(); c.Session.Resume() { // a turn ends after about 15 corrections
			c.Session.Sent()
		}
		c.Session.Sent()
	}
}
