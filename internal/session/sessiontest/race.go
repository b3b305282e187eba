package sessiontest

import "testing"

// HasOneGoroutine skips a long test under the race detector, which finds nothing in a single goroutine and makes it
// many times slower. Without it, make test-plain runs the test.
func HasOneGoroutine(t *testing.T) {
	t.Helper()
	if RaceEnabled {
		t.Skip("one goroutine has no data races")
	}
}
