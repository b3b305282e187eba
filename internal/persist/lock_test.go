package persist

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
)

func newLock(dir string) *folderLock {
	return &folderLock{dir: directory(dir), machine: newStillMachine(store.Reading{Wall: hour})}
}

func TestLock(t *testing.T) {
	o, log := logged()
	dir := t.TempDir()
	held, lock := newLock(dir), newLock(dir)
	require.NoError(t, held.lock())
	again, err := held.ensureHeld()
	require.NoError(t, err)
	require.False(t, again)
	holder := readHolder(held.file)
	require.Regexp(t, `^process \d+ on host .+, started 1970-01-01T01:00:00Z$`, holder)

	var locked *LockedError
	require.ErrorAs(t, lock.wait(ctx, 0, o.Log, nil), &locked)
	require.Equal(t, &LockedError{dir, holder}, locked)
	require.Equal(t, []string{""}, log(), "it does not wait")

	pause := make(chan time.Time, 10)
	for range 10 {
		pause <- time.Time{}
	}
	require.ErrorAs(t, lock.wait(ctx, 10*lockEvery, o.Log, pause), &locked)
	require.Len(t, log(), 1, "each holder is logged once")
	require.Empty(t, pause)

	canceled, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, lock.wait(canceled, time.Hour, o.Log, nil), context.Canceled)

	go func() {
		pause <- time.Time{}
		held.release()
		close(pause)
	}()
	require.NoError(t, lock.wait(ctx, time.Hour, o.Log, pause))
	lock.release()
}

// The lock does not protect the folder if its file was removed. The process locks the folder again,
// unless another process has done so.
func TestLockRemoved(t *testing.T) {
	dir := t.TempDir()
	a, b := newLock(dir), newLock(dir)
	remove := func() { require.NoError(t, os.Remove(filepath.Join(dir, lockName))) }
	require.NoError(t, a.lock())
	remove()
	again, err := a.ensureHeld()
	require.NoError(t, err)
	require.True(t, again)
	var locked *LockedError
	require.ErrorAs(t, b.lock(), &locked)
	remove()
	require.NoError(t, b.lock())
	_, err = a.ensureHeld()
	require.ErrorAs(t, err, &locked)
	a.release()
	b.release()
}

// The lock ends with the process, even if the process is killed.
func TestLockOfKilledProcess(t *testing.T) {
	if dir := os.Getenv("LOCK_FOLDER"); dir != "" {
		require.NoError(t, newLock(dir).lock())
		os.Stdout.WriteString("locked\n")
		select {}
	}
	dir := t.TempDir()
	other := exec.Command(os.Args[0], "-test.run=TestLockOfKilledProcess")
	other.Env = append(os.Environ(), "LOCK_FOLDER="+dir)
	out, err := other.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	_, err = out.Read(make([]byte, 7))
	require.NoError(t, err)
	lock := newLock(dir)
	require.ErrorContains(t, lock.lock(), dir+" is in use by process ")
	require.NoError(t, other.Process.Kill())
	other.Wait()
	require.NoError(t, lock.lock())
	lock.release()
}

// A folder that cannot be created, or cannot be written to, is an error.
func TestUnusableFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Open(ctx, file, Options{})
	require.Error(t, err)
	_, err = Open(ctx, filepath.Join(file, "folder"), Options{})
	require.Error(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, lockName), 0o700))
	_, err = Open(ctx, dir, Options{})
	require.Error(t, err)
	var locked *LockedError
	require.NotErrorAs(t, err, &locked)
}

// A folder that disappears, and another that takes its place, are noticed.
func TestFolderRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "folder")
	f, data := openReal(t, dir)
	fill(t, data)
	require.NoError(t, f.Flush())
	require.NoError(t, os.RemoveAll(dir))
	require.ErrorIs(t, f.Flush(), os.ErrNotExist)
	require.True(t, f.Failing())
	require.Contains(t, f.Status().Failure.Reason, "no such file or directory")

	require.NoError(t, os.Mkdir(dir, 0o700))
	for f.Failing() { // a segment and a snapshot are written
		f.ask(func(r *recorder) error {
			r.tick()
			return nil
		})
	}
	want := dump(t, data)
	require.NoError(t, f.Close())
	_, data = openReal(t, dir)
	require.Equal(t, want, dump(t, data))
}

// Two processes never write to the same folder, even if the lock file is removed.
func TestLockRemovedInUse(t *testing.T) {
	dir := t.TempDir()
	f, data := openReal(t, dir)
	fill(t, data)
	require.NoError(t, f.Flush())
	want := dump(t, data)
	remove := func() { require.NoError(t, os.Remove(filepath.Join(dir, lockName))) }
	remove()
	other, otherData := openReal(t, dir)
	require.Equal(t, want, dump(t, otherData))
	var locked *LockedError
	require.ErrorAs(t, f.Flush(), &locked)
	require.NoError(t, other.Close())
	f.Flush()
	require.ErrorIs(t, f.Flush(), errForeign)
	require.Error(t, f.Close())
	_, data = openReal(t, dir)
	require.Equal(t, want, dump(t, data))
}

// The process notices that the segment was removed, and does not write to it: no startup would find
// the pass.
func TestSegmentRemoved(t *testing.T) {
	p := mustStart(t, newDisk(), Options{})
	p.store.set("1", "a")
	p.tick()
	require.NoError(t, p.disk.remove(segmentName(1)))
	p.store.set("2", "b")
	p.tick()
	require.True(t, p.folder.Failing())
	p.tick()
	p.finish()
	require.False(t, p.folder.Failing())
	requireContent(t, p.disk, state{"a": "1", "b": "2"})
}
