//go:build !linux

package meter

// threadTime returns 0 on systems without a clock per thread, where every measurement is therefore
// 0.
func threadTime() int64 { return 0 }
