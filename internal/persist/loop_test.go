package persist

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The loop writes a pass each second, executes requests, and ends at Close.
func TestLoop(t *testing.T) {
	p := mustStart(t, newDisk(), Options{})
	ticks := make(chan time.Time)
	p.folder.ticks = func() (<-chan time.Time, func()) { return ticks, func() {} }
	p.r.launch = func(f func()) { go f() }
	go p.folder.loop()
	p.store.set("1", "a")
	ticks <- time.Time{}
	require.NoError(t, p.folder.ask(func(*recorder) error { return nil })) // the tick is over
	requireContent(t, p.disk, state{"a": "1"})

	require.NoError(t, p.folder.Compact())
	for p.folder.Status().Journal.BaseSize == 0 {
		require.NoError(t, p.folder.Flush())
	}
	p.store.set("2", "a")
	require.NoError(t, p.folder.Flush())
	requireContent(t, p.disk, state{"a": "2"})
	p.store.set("3", "a")
	require.NoError(t, p.folder.Close())
	requireContent(t, p.disk, state{"a": "3"})
	require.ErrorIs(t, p.folder.Compact(), ErrNotRunning)
	require.ErrorIs(t, p.folder.Flush(), ErrNotRunning)
	require.ErrorIs(t, p.folder.BeginSaveRDB("dump.rdb"), ErrNotRunning)
}

// There is at most one request for a compaction at a time.
func TestCompactTwice(t *testing.T) {
	p := mustStart(t, newDisk(), Options{})
	require.NoError(t, p.folder.Compact())
	require.ErrorIs(t, p.folder.Compact(), ErrCompacting)
	<-p.folder.compacts
	p.r.compaction.requested = true
	p.tick()
	require.ErrorIs(t, p.folder.Compact(), ErrCompacting)
	p.finish()
	require.NoError(t, p.folder.Compact())
}

// A shutdown does not wait for a snapshot.
func TestCloseDuringCompaction(t *testing.T) {
	p := mustStart(t, newDisk(), Options{})
	p.store.set("1", "a", "b", "c", "d", "e")
	p.r.compaction.requested = true
	p.tick()
	begun, chunks := make(chan struct{}), 0
	p.store.during = func(n int) {
		if chunks = n; n == 0 {
			close(begun)
			for !p.r.compaction.canceled.Load() {
			}
		}
	}
	go p.goroutines[0]()
	<-begun
	require.NoError(t, p.r.close())
	require.Zero(t, chunks)
	names, _ := p.disk.list()
	require.Equal(t, []string{segmentName(1), segmentName(2), temporaryName}, names)
	requireContent(t, p.disk, p.store.keys)
}

// gatedLoader applies each chunk only when the test lets it.
type gatedLoader struct {
	*toyLoader
	gate chan struct{}
}

func (l gatedLoader) Apply(entries []byte) error {
	<-l.gate
	return l.toyLoader.Apply(entries)
}

// A load reports its progress, in the log once a second and in the Status.
func TestLoadProgress(t *testing.T) {
	d, _ := example(t)
	o, log := logged()
	ticks := make(chan time.Time)
	machine := &toyMachine{}
	machine.advance(time.Hour)
	env := environment{files: d, machine: machine, unlock: func() {}, busy: new(atomic.Int32)}
	env.ticks = func() (<-chan time.Time, func()) { return ticks, func() {} }
	f, err := open("test", o, env)
	require.NoError(t, err)
	l := gatedLoader{&toyLoader{s: newToyStore(nil)}, make(chan struct{})}
	done := make(chan error)
	go func() { done <- f.Load(ctx, l) }()
	for range 3 {
		l.gate <- struct{}{}
	}
	machine.advance(time.Minute)
	status := f.Status().Loading
	require.True(t, status.Active)
	require.Equal(t, int64(3600), status.StartTime)
	require.Greater(t, status.LoadedBytes, int64(10))
	require.Less(t, status.LoadedBytes, status.TotalBytes)
	require.InDelta(t, 60, status.Elapsed.Seconds(), 1)
	require.Positive(t, status.Remaining())
	require.Greater(t, status.Percent(), 1.0)
	ticks <- time.Time{}
	ticks <- time.Time{} // the line of the first tick is written
	close(l.gate)
	require.NoError(t, <-done)
	require.Regexp(t, `^msg=loading percent=\d+ bytes=\d+ of=\d+$`, log()[0])
	require.False(t, f.Status().Loading.Active)
	require.True(t, l.done)
	require.False(t, strings.Contains(log()[0], "100"))
}
