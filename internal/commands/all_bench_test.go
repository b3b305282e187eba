package commands_test

import (
	"cellserver/internal/commands/commandstest"
	"fmt"
	"strings"
	"testing"
)

// BenchmarkAll is BenchmarkSession for CL.ALL of two limits.
func BenchmarkAll(b *testing.B) {
	call := commandstest.Encode(strings.Fields("CL.ALL 2 THROTTLE k:000000000000 15 30 60 1 FIXED d:000000000000 1000000 86400 1"))
	for _, depth := range []int{1, 64} {
		b.Run(fmt.Sprintf("P=%d", depth), func(b *testing.B) {
			b.ReportAllocs()
			repeat(commandstest.New(b).Connect(), b.N, depth, string(call))
		})
	}
}
