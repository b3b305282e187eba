//go:build !linux

package memory

import "testing"

// present is not known.
func present(*testing.T, []byte) int { return 0 }
