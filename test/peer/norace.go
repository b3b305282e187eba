//go:build !race

package peer

// Race reports whether the race detector is on. Then the server is built with it too, and
// everything takes longer.
const Race = false
