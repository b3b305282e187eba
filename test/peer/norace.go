//go:build !race

package peer

// Race says whether the race detector is on: then the server is built with it too, and everything
// takes longer.
const Race = false
