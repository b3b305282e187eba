package persist

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// logged returns options with a log, and a function that returns its lines, without time and level.
func logged() (Options, func() []string) {
	var text bytes.Buffer
	leaveOut := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: leaveOut}))
	return Options{Log: log}, func() []string {
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		text.Reset()
		return lines
	}
}

// requireContent starts a process after a power failure, and compares its keys.
func requireContent(t *testing.T, d *disk, want state) {
	t.Helper()
	require.Equal(t, want, mustStart(t, d.powerFailure(), Options{}).store.keys)
}

// Changes that cannot be written because the disk is full are written as soon as there is space.
func TestFullDisk(t *testing.T) {
	o, log := logged()
	p := mustStart(t, newDisk(), o)
	p.store.set("1", "a", "b")
	p.tick()
	p.disk.capacity = p.disk.used() + 10
	for i := range 5 {
		p.store.set(fmt.Sprint("new", i), "a")
		p.store.set("1", fmt.Sprint("k", i))
		p.tick()
	}
	require.True(t, p.folder.Failing())
	failure := p.folder.Status().Failure
	require.Equal(t, "no space left on device", failure.Reason)
	require.NotZero(t, failure.Since)
	require.True(t, p.folder.Status().Journal.LastWriteFailed)
	requireContent(t, p.disk, state{"a": "1", "b": "1"})

	p.disk.capacity = 1 << 20
	p.tick()
	require.False(t, p.folder.Failing())
	require.Zero(t, p.folder.Status().Failure)
	require.Empty(t, p.goroutines, "no snapshot is necessary")
	requireContent(t, p.disk,
		state{"a": "new4", "b": "1", "k0": "1", "k1": "1", "k2": "1", "k3": "1", "k4": "1"})
	require.Equal(t, []string{
		`msg="changes cannot be written to the disk: they would be lost in a crash" error="no space left on device"`,
		`msg="changes are written to the disk again" seconds=5`,
	}, log())
}

// If there are more unwritten changes than are kept in memory, a snapshot is written when there is
// space.
func TestFullDiskForLong(t *testing.T) {
	p := mustStart(t, newDisk(), Options{})
	p.store.set("1", "a", "b")
	p.tick()
	p.disk.capacity = p.disk.used()
	for range 3 {
		p.store.set(strings.Repeat("x", 600), "a")
		p.tick()
	}
	require.True(t, p.r.gap)
	require.Empty(t, p.r.unwritten.chunks)
	p.disk.capacity = 1 << 20
	require.True(t, p.folder.Failing())
	p.store.set("2", "a")
	for range maxWait {
		p.tick()
	}
	require.True(t, p.folder.Failing(), "without the snapshot, nothing would be found after a crash")
	requireContent(t, p.disk, state{"a": "1", "b": "1"})
	p.finish()
	require.False(t, p.folder.Failing())
	requireContent(t, p.disk, state{"a": "2", "b": "1"})
}

// On a small disk, segments are replaced before they fill it.
func TestSmallDisk(t *testing.T) {
	p := mustStart(t, newDisk(), Options{})
	p.disk.capacity = 1500
	for i := range 100 {
		p.store.set(fmt.Sprint(i), "a")
		p.tick()
		p.finish()
		require.False(t, p.folder.Failing())
	}
	requireContent(t, p.disk, state{"a": "99"})
}

// If a disk is full of segments, they are replaced by a snapshot.
func TestDiskFullOfSegments(t *testing.T) {
	p := mustStart(t, newDisk(), Options{})
	for i := range 3 {
		p.store.set(fmt.Sprint(i, strings.Repeat("x", 100)), "a", "b", "c")
		p.tick()
	}
	p.store.set("", "b", "c")
	p.disk.capacity = p.disk.used() + 600
	p.store.set(strings.Repeat("x", 100), "d", "e", "f", "g", "h", "i")
	p.tick()
	p.store.set("", "d", "e", "f", "g", "h", "i")
	require.True(t, p.folder.Failing())
	for range 30 {
		p.tick()
		p.finish()
	}
	require.False(t, p.folder.Failing())
	requireContent(t, p.disk, p.store.keys)
}

// After a failed sync, it is unknown which part of the segment is on the disk. A snapshot replaces
// it.
func TestFailedSync(t *testing.T) {
	p := mustStart(t, newDisk(), Options{})
	p.store.set("1", "a", "b")
	p.tick()
	p.disk.noSync = true
	for i := range 200 { // the time between the attempts becomes longer
		p.store.set(fmt.Sprint(i), "a", "b")
		p.tick()
		p.finish()
	}
	require.True(t, p.folder.Failing())
	names, _ := p.disk.list()
	require.LessOrEqual(t, len(names), 3, "segments without a snapshot do not pile up")
	requireContent(t, p.disk, state{"a": "1", "b": "1"})
	p.disk.noSync = false
	for range maxWait {
		p.tick()
		p.finish()
	}
	require.False(t, p.folder.Failing())
	requireContent(t, p.disk, p.store.keys)
	p.store.set("3", "a")
	p.tick()
	requireContent(t, p.disk, p.store.keys)
}

// A pass that the store cannot complete is replaced by a snapshot.
func TestPassFails(t *testing.T) {
	p := mustStart(t, newDisk(), Options{})
	p.store.set("1", "a", "b")
	p.store.failing = errTooLarge
	p.tick()
	require.Equal(t, errTooLarge.Error(), p.folder.Status().Failure.Reason)
	requireContent(t, p.disk, state{})
	p.tick()
	p.finish()
	requireContent(t, p.disk, state{"a": "1", "b": "1"})
	require.False(t, p.folder.Failing())
}

// A shutdown writes the snapshot that is necessary, and fails if it cannot.
func TestCloseAfterLoss(t *testing.T) {
	p := mustStart(t, newDisk(), Options{})
	p.store.set("1", "a", "b")
	p.store.failing = errTooLarge
	p.tick()
	require.NoError(t, p.close())
	requireContent(t, p.disk, state{"a": "1", "b": "1"})

	p = mustStart(t, newDisk(), Options{})
	p.store.set("1", "a", "b")
	p.store.failing = errTooLarge
	p.tick()
	p.disk.capacity = p.disk.used()
	require.ErrorIs(t, p.close(), errFull)
}

// A process starts on a full disk.
func TestStartOnFullDisk(t *testing.T) {
	d := newDisk()
	d.capacity = 0
	p := mustStart(t, d, Options{})
	require.True(t, p.folder.Failing())
	p.store.set("1", "a")
	p.tick()
	d.capacity = 1 << 20
	p.tick()
	require.False(t, p.folder.Failing())
	requireContent(t, d, state{"a": "1"})

	d = newDisk()
	d.capacity = 0
	p = mustStart(t, d, Options{})
	for range 3 {
		p.store.set(strings.Repeat("x", 600), "a")
		p.tick()
	}
	require.True(t, p.r.gap)
	d.capacity = 1 << 20
	p.tick()
	requireContent(t, d, state{})
	p.finish()
	requireContent(t, d, p.store.keys)
}

// If a snapshot cannot be written, the process tries again at increasing intervals. Passes continue
// meanwhile.
func TestSnapshotFails(t *testing.T) {
	o, log := logged()
	p := mustStart(t, newDisk(), o)
	p.store.set("1", "a", "b", "c")
	p.r.compaction.requested = true
	p.tick()
	p.disk.capacity = p.disk.used() + 100
	p.finish()
	require.Empty(t, p.disk.names[temporaryName].content, "its space is free")
	require.True(t, p.folder.Status().Journal.LastCompactionFailed)
	p.disk.capacity = 1 << 20
	require.NoError(t, p.close())
	requireContent(t, p.disk, state{"a": "1", "b": "1", "c": "1"})
	require.Equal(t, []string{
		`msg="a snapshot cannot be written; it will be tried again" error="no space left on device"`}, log())

	require.False(t, p.folder.Failing())
	c := &p.r.compaction
	var delays []int
	for range 9 {
		delays = append(delays, c.retry.left)
		c.retry.failed()
	}
	require.Equal(t, []int{1, 2, 4, 8, 16, 32, 64, 64, 64}, delays)
}

// A snapshot replaces a journal that is large, or has many segments.
func TestCompactionBegins(t *testing.T) {
	p := mustStart(t, newDisk(), Options{})
	for i := range 3 {
		p.store.set(fmt.Sprint(i)+strings.Repeat("x", 900), "a")
		p.tick()
	}
	require.Empty(t, p.goroutines)
	for i := range 3 {
		p.store.set(fmt.Sprint(i)+strings.Repeat("y", 900), "a")
		p.tick()
	}
	require.Len(t, p.goroutines, 1, "there is one snapshot at a time")
	p.finish()
	status := p.folder.Status().Journal
	require.InDelta(t, 1000, status.BaseSize, 100)
	require.InDelta(t, 2000, status.Size, 400)

	for range smallLimits.maxSegments {
		require.Empty(t, p.goroutines)
		require.NoError(t, p.close())
		p = mustStart(t, p.disk.killed(), Options{})
		p.tick()
	}
	require.Len(t, p.goroutines, 1)
	p.finish()
	names, _ := p.disk.list()
	require.Len(t, names, 2)
}

// An idle server writes a pass a minute.
func TestIdle(t *testing.T) {
	p := mustStart(t, newDisk(), Options{})
	p.store.set("1", "a")
	p.tick()
	p.tick() // a pass without entries
	before := p.r.writer.Next()
	for range 3 * maxSkipped {
		p.tick()
	}
	require.Equal(t, before+2, p.r.writer.Next())
	require.Less(t, p.folder.Status().Passes.SyncAge.Microseconds(), int64(100))
}

// If no file can be created, the journal continues in its current file.
func TestNoFileCanBeCreated(t *testing.T) {
	p := mustStart(t, newDisk(), Options{})
	p.disk.noNames = true
	for i := range 20 {
		p.store.set(fmt.Sprint(i), "a")
		p.r.compaction.requested = true
		p.tick()
		require.False(t, p.folder.Failing(), p.folder.Status().Failure.Reason)
		require.True(t, p.folder.Status().Journal.LastCompactionFailed)
		requireContent(t, p.disk, state{"a": fmt.Sprint(i)})
	}
	p.disk.noNames = false
	p.r.compaction.requested = true
	p.tick()
	p.finish()
	require.NotZero(t, p.folder.Status().Journal.BaseSize)
	requireContent(t, p.disk, state{"a": "19"})
}

// If a disk has no space for another segment, the current segment continues.
func TestNoSpaceForNextSegment(t *testing.T) {
	for room := range 300 {
		p := mustStart(t, newDisk(), Options{})
		p.store.set("1", "a")
		p.tick()
		p.disk.capacity = p.disk.used() + room
		p.r.compaction.requested = true
		p.tick()
		p.finish()
		p.disk.capacity = 1 << 20
		p.store.set("2", "a")
		p.tick()
		require.False(t, p.folder.Failing())
		require.False(t, p.r.gap)
		requireContent(t, p.disk, state{"a": "2"})
		require.NoError(t, p.close())
		requireContent(t, p.disk, state{"a": "2"})
	}
}

// A disk on which each third sync fails, of files and of the folder, delays changes by a second or two.
// No pass is lost, and no snapshot is necessary.
func TestSomeSyncsFail(t *testing.T) {
	for each := 3; each < 12; each++ {
		p := mustStart(t, newDisk(), Options{})
		p.disk.failEach = each
		for i := range 200 {
			p.store.set(fmt.Sprint(i), "a")
			p.tick()
			p.finish()
			require.False(t, p.r.gap, each)
			require.GreaterOrEqual(t, p.promised, len(p.store.history)-4, "each %d, pass %d", each, i)
			require.True(t, p.survived(mustStart(t, p.disk.powerFailure(), Options{}).store.keys))
			require.True(t, p.survived(mustStart(t, p.disk.killed(), Options{}).store.keys))
		}
		require.LessOrEqual(t, p.r.segments, 4*smallLimits.maxSegments+1)
	}
}
