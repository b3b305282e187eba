//go:build !linux

package meter

// threadTime is 0 where a thread's own time is not to be had: then nothing is ever long.
func threadTime() int64 { return 0 }
