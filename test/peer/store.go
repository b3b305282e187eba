//go:build !valkey

package peer

import "testing"

// StartStore starts a server that holds the keys of a remote store. With the build tag valkey, it is
// Valkey's, which compares and sets without a script.
func StartStore(t *testing.T, args ...string) *Server {
	t.Helper()
	return StartRedis(t, args...)
}

// NativeStore says whether the server of StartStore has SET IFEQ.
const NativeStore = false

// storeProgram is the program of StartStore.
func storeProgram() string { return "redis-server" }
