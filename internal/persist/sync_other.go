//go:build !linux

package persist

import "os"

func syncData(f *os.File) error { return f.Sync() }
