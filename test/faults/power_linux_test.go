package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"cellserver/test/peer"
)

// power records which part of a folder is certainly on the disk: the names at the folder's last
// sync, and the size of each file at the file's last sync.
type power struct {
	dir   string
	names map[string]uint64 // inode by name
	sizes map[uint64]int64  // by inode
}

// newPower begins a record for a folder, whose present content counts as synced.
func newPower(t *testing.T, dir string) *power {
	p := &power{dir: dir, sizes: map[uint64]int64{}}
	p.names = p.list()
	for name, inode := range p.names {
		stat, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		p.sizes[inode] = stat.Size()
	}
	return p
}

func (p *power) list() map[string]uint64 {
	names := map[string]uint64{}
	entries, _ := os.ReadDir(p.dir)
	for _, e := range entries {
		if stat, err := e.Info(); err == nil {
			names[e.Name()] = stat.Sys().(*syscall.Stat_t).Ino
		}
	}
	return names
}

// sync is called when a process is about to sync a file or the folder.
func (p *power) sync(pid, descriptor int) {
	stat, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", pid, descriptor))
	switch {
	case err != nil:
	case stat.IsDir():
		p.names = p.list()
	default:
		p.sizes[stat.Sys().(*syscall.Stat_t).Ino] = stat.Size()
	}
}

// fail removes what a power failure may remove: all writes and names that were not synced. It is
// called after the process was killed.
func (p *power) fail(t *testing.T) {
	synced := map[uint64]string{}
	for name, inode := range p.names {
		synced[inode] = name
	}
	for name, inode := range p.list() {
		path := filepath.Join(p.dir, name)
		if p.names[name] != inode {
			if old := synced[inode]; old == "" {
				require.NoError(t, os.Remove(path))
				continue
			}
			require.NoError(t, os.Rename(path, filepath.Join(p.dir, synced[inode])))
			path = filepath.Join(p.dir, synced[inode])
		}
		stat, err := os.Stat(path)
		require.NoError(t, err)
		if size := p.sizes[inode]; size < stat.Size() {
			require.NoError(t, os.Truncate(path, size))
		}
	}
}

// After a power failure at any moment, all steps that were promised are there, although all writes
// and names that the server has not synced are lost.
func TestPowerFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := newLoad(t)
	l.gentle, l.waitaof = true, true
	failures := amount(8, 150)
	for range failures {
		d := &disk{killAt: int64(1 + rand.IntN(200)), power: newPower(t, dir)}
		server, ready := onDisk(t, d, "--dir", dir)
		if ready {
			l.run(server)
			<-d.ended
			l.end()
		}
		server.Wait()
		d.power.fail(t)
		next := peer.Start(t, "--dir", dir, "--loglevel", "nothing")
		l.verify(next, time.Duration(l.promise.Load()))
		ask(t, next, "BGREWRITEAOF")
		await(t, func() bool { return compacted(ask(t, next, "INFO persistence")[0]) })
		next.Signal(syscall.SIGTERM)
		require.Zero(t, next.Wait())
	}
	t.Log(failures, "failures")
}

// The test finds a disk that reports syncs without making them: it loses promised steps.
func TestDiskThatLiesIsFound(t *testing.T) {
	dir := t.TempDir()
	l := newLoad(t)
	l.gentle, l.waitaof = true, true
	d := &disk{power: newPower(t, dir), lies: true}
	server, ready := onDisk(t, d, "--dir", dir)
	require.True(t, ready)
	l.run(server)
	l.awaitSteps(100)
	l.awaitPasses(2) // the second begins after these steps
	promised := l.kill(server)
	d.power.fail(t)
	errs := l.contradictions(l.look(peer.Start(t, "--dir", dir)), promised)
	require.NotEmpty(t, errs)
	require.Contains(t, fmt.Sprint(errs), "is as after step 0 of")
}

// isSync reports whether a call is a sync, and returns the file.
func isSync(n *notification) (descriptor int, ok bool) {
	return int(n.arguments[0]), n.call == unix.SYS_FDATASYNC || n.call == unix.SYS_FSYNC
}
