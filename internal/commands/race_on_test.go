//go:build race

package commands

// raceEnabled is true under the race detector, which allocates memory of its own.
const raceEnabled = true
