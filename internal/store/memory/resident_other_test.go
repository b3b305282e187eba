//go:build !linux

package memory

import "testing"

// present is not implemented on other systems.
func present(*testing.T, []byte) int { return 0 }
