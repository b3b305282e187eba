package memory

import "testing"

// hasOneGoroutine skips a long test under the race detector, which finds nothing in a single goroutine and makes it
// many times slower. Without it, make test-plain runs the test.
func hasOneGoroutine(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("one goroutine has no data races")
	}
}
