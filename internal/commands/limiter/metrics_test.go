package limiter

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestAllowedCallsNeverBecomeFewer reads the counters in the middle of a turn, in which calls are counted as
// limited before they are counted as calls.
func TestAllowedCallsNeverBecomeFewer(t *testing.T) {
	var shown shownDecisions
	assert.Equal(t, int64(10), shown.allowed(1, 10, 10))
	assert.Equal(t, int64(10), shown.allowed(1, 10, 5), "five limited calls, which are not counted as calls yet")
	assert.Equal(t, int64(10), shown.allowed(1, 15, 10), "now they are")
	assert.Equal(t, int64(12), shown.allowed(1, 17, 12))
	assert.Equal(t, int64(0), shown.allowed(2, 1, -3), "another command")
	assert.Equal(t, int64(3), shown.allowed(1, 4, 3), "after CONFIG RESETSTAT")
}
