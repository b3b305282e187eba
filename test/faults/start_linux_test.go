package faults

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// A server starts, with all keys, on a disk that can be read but not written. When the disk works
// again, the changes since then are written too.
func TestStartWhileDiskFails(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"writes fail": noWrites, "syncs fail": noSyncs} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l := newLoad(t)
			l.gentle = true
			server := peer.Start(t, "--dir", dir)
			l.run(server)
			l.awaitSteps(100)
			l.terminate(server)

			d := &disk{}
			d.begin(f)
			server, ready := onDisk(t, d, "--dir", dir)
			require.True(t, ready, server.Stderr())
			await(t, func() bool { return strings.Contains(server.Stderr(), isLost) })
			l.verify(server, always)
			l.run(server)
			l.awaitSteps(100)
			d.end()
			await(t, func() bool { return strings.Contains(server.Log(), isWritten) || t.Failed() })
			ended := int64(now())
			await(t, func() bool { return l.promise.Load() > ended || t.Failed() })
			l.verifyAfter(l.kill(server), dir, "nothing")
		})
	}
}

// A server does not start if it cannot lock the folder. The error says why.
func TestReadOnlyFolder(t *testing.T) {
	dir := t.TempDir()
	d := &disk{}
	d.begin(readOnly)
	server, ready := onDisk(t, d, "--dir", dir)
	require.False(t, ready)
	require.Equal(t, 1, server.Wait())
	require.Contains(t, server.Stderr(), dir)
	require.Contains(t, server.Stderr(), "read-only file system")
}
