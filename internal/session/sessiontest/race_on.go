//go:build race

package sessiontest

// RaceEnabled is true under the race detector, which allocates memory of its own.
const RaceEnabled = true
