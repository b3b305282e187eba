package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// A server uses the database of --tz-database if that database is newer than its own, and says so.
func TestTimeZonesOfAFolder(t *testing.T) {
	folder := t.TempDir()
	refused := refusesToStart(t, "--port", "0", "--unixsocket", filepath.Join(t.TempDir(), "s"), "--tz-database", folder)
	assert.Contains(t, refused, "there is no version of a time zone database")
	assert.Contains(t, refused, "without this option, the time zones are the program's own")
	for version, from := range map[string]string{"2099z": folder, "2020a": "embedded"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "+VERSION"), []byte(version+"\n"), 0o600))
		server := peer.Start(t, "--tz-database", folder)
		assert.Contains(t, exchange(t, server, command("INFO", "server")), "tz_database:"+from)
		assert.Equal(t, from == folder, strings.Contains(server.Log(), "time_zones="+version))
	}
}
