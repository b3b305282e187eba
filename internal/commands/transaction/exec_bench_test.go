package transaction_test

import (
	"cellserver/internal/commands/commandstest"
	"testing"
)

// BenchmarkTransaction measures a session's work for a transaction of two INCR that arrives at
// once. For comparison, it measures one INCR, two, and a transaction that is discarded.
func BenchmarkTransaction(b *testing.B) {
	one := "*2\r\n$4\r\nINCR\r\n$9\r\ncounter:1\r\n"
	two := one + "*2\r\n$4\r\nINCR\r\n$9\r\ncounter:2\r\n"
	for _, of := range []struct{ name, calls string }{
		{"INCR", one},
		{"INCR,INCR", two},
		{"MULTI,INCR,INCR,DISCARD", "*1\r\n$5\r\nMULTI\r\n" + two + "*1\r\n$7\r\nDISCARD\r\n"},
		{"MULTI,INCR,INCR,EXEC", "*1\r\n$5\r\nMULTI\r\n" + two + "*1\r\n$4\r\nEXEC\r\n"},
	} {
		b.Run(of.name, func(b *testing.B) {
			c := commandstest.New(b).Connect()
			input := []byte(of.calls)
			b.ReportAllocs()
			for range b.N {
				c.Session.Feed(input)
				c.Session.Sent()
			}
		})
	}
}
