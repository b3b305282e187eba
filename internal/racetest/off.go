//go:build !race

package racetest

// Enabled reports whether the race detector is on. It allocates memory of its own, and makes memory accesses many
// times slower.
const Enabled = false
