package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An error of a listener names the option that chooses another port or path.
func TestListenErrorsNameTheOption(t *testing.T) {
	used, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer used.Close()
	n := newNetwork()
	n.bind = "127.0.0.1"
	_, err = listenAll(&n, "http-port", used.Addr().(*net.TCPAddr).Port)
	require.ErrorContains(t, err, "address already in use")
	assert.ErrorContains(t, err, "; --http-port chooses another")

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for path, reason := range map[string]string{file: "the file is not a socket", file + "/socket": "not a directory"} {
		_, err = listenUnix("http-unixsocket", path, "")
		require.ErrorContains(t, err, reason)
		assert.ErrorContains(t, err, "; --http-unixsocket chooses another path")
	}
}
