//go:build !race && !raceserver

package racetest

// Enabled reports whether the race detector is on, in the test or in the servers that it starts. It allocates memory of
// its own, and makes memory accesses many times slower.
const Enabled = false
