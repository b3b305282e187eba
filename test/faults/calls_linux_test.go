package faults

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// A server that is killed before any of the system calls that change files, from its start to the
// end of a compaction, can be started again, and has all steps that were promised.
// TestCrashAnywhere in internal/persist does the same for power failures, with a simulated disk.
func TestKilledAtEachCall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := newLoad(t)
	l.gentle, l.compacts = true, false
	last := int64(0)
	for at := int64(1); last == 0; at += int64(amount(7, 1)) {
		d := &disk{killAt: at}
		server, ready := onDisk(t, d, "--dir", dir)
		if ready {
			if l.untilKilled(d, server) {
				last = at
			}
		}
		server.Wait()
		next := peer.Start(t, "--dir", dir, "--loglevel", "nothing")
		l.verify(next, time.Duration(l.promise.Load()))
		ask(t, next, "BGREWRITEAOF")
		await(t, func() bool { return compacted(ask(t, next, "INFO persistence")[0]) })
		next.Signal(syscall.SIGKILL)
		next.Wait()
	}
	t.Log("killed at calls up to", last)
}

// untilKilled makes a server work until the disk has killed it. It returns true if the server has completed a
// compaction instead.
func (l *load) untilKilled(d *disk, server *peer.Server) (done bool) {
	l.run(server)
	defer l.end()
	c, err := dial(server.Addr)
	if err != nil {
		return false
	}
	defer c.Close()
	if _, err = c.ask("BGREWRITEAOF"); err != nil {
		return false
	}
	for {
		replies, err := c.ask("INFO persistence")
		if err != nil {
			<-d.ended
			return false
		}
		if compacted(replies[0]) {
			server.Signal(syscall.SIGKILL)
			return true
		}
		<-l.pace
	}
}

// compacted reports whether INFO shows that a compaction was completed since the start.
func compacted(info string) bool {
	return field(info, "aof_rewrites") == "1" && field(info, "aof_rewrite_in_progress") == "0"
}

// A server that is stopped while its disk fails ends with an error that says that changes were
// lost. The steps that were promised before are there.
func TestTerminationWhileDiskFails(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"full": noSpace, "syncs fail": noSyncs} {
		dir := t.TempDir()
		l := newLoad(t)
		l.gentle = true
		server, _ := l.startFailing(outage{begin: fails(f)}, dir, 0)
		promised := time.Duration(l.promise.Load())
		server.Signal(syscall.SIGTERM)
		assert.Equal(t, 1, server.Wait(), name)
		l.end()
		require.Contains(t, server.Stderr(), outages[name].says)
		l.verify(peer.Start(t, "--dir", dir, "--loglevel", "nothing"), promised)
	}
}
