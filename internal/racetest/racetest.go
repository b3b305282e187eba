// Package racetest tells tests whether the race detector is on.
//
// With the tag raceserver, it is on in the servers that tests start, but not in the tests themselves, which are clients
// and would take most of the CPU time.
package racetest

import "testing"

// HasOneGoroutine skips a long test under the race detector, which finds nothing in a single goroutine. The package
// must be one of make test-plain, which runs the test without it.
func HasOneGoroutine(t *testing.T) {
	t.Helper()
	if Enabled {
		t.Skip("one goroutine has no data races")
	}
}
