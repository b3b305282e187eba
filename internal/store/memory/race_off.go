//go:build !race

package memory

const underRace = false
