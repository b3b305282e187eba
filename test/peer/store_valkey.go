//go:build valkey

package peer

import (
	"os"
	"testing"
)

// StartStore starts the valkey-server that VALKEY_SERVER names.
func StartStore(t *testing.T, args ...string) *Server {
	t.Helper()
	return StartValkey(t, args...)
}

// NativeStore says whether the server of StartStore has SET IFEQ.
const NativeStore = true

// storeProgram is the program of StartStore.
func storeProgram() string { return os.Getenv(Valkey) }
