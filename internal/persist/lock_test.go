package persist

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
)

func TestLock(t *testing.T) {
	o, log := logged()
	dir := directory(t.TempDir())
	lock, err := lockFolder(ctx, dir, 0, o.Log, nil)
	require.NoError(t, err)
	writeHolder(lock, store.Reading{Wall: int64(time.Hour)})
	holder := readHolder(lock)
	require.Regexp(t, `^process \d+ on host .+, started 1970-01-01T01:00:00Z$`, holder)

	_, err = lockFolder(ctx, dir, 0, o.Log, nil)
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, &LockedError{string(dir), holder}, locked)
	require.Equal(t, []string{""}, log(), "it does not wait")

	pause := make(chan time.Time, 10)
	for range 10 {
		pause <- time.Time{}
	}
	_, err = lockFolder(ctx, dir, 10*lockEvery, o.Log, pause)
	require.ErrorAs(t, err, &locked)
	require.Len(t, log(), 1, "each holder is logged once")

	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = lockFolder(canceled, dir, time.Hour, o.Log, nil)
	require.ErrorIs(t, err, context.Canceled)

	ticks := make(chan time.Time)
	go func() {
		ticks <- time.Time{}
		ticks <- time.Time{}
		lock.Close()
		close(ticks)
	}()
	lock, err = lockFolder(ctx, dir, time.Hour, o.Log, ticks)
	require.NoError(t, err)
	lock.Close()
}

// The lock ends with the process, even if that is killed.
func TestLockOfKilledProcess(t *testing.T) {
	if dir := os.Getenv("LOCK_FOLDER"); dir != "" {
		_, err := lockFolder(ctx, directory(dir), 0, nil, nil)
		require.NoError(t, err)
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
	_, err = lockFolder(ctx, directory(dir), 0, nil, nil)
	require.EqualError(t, err, dir+" is in use by an unknown process")
	require.NoError(t, other.Process.Kill())
	other.Wait()
	lock, err := lockFolder(ctx, directory(dir), 0, nil, nil)
	require.NoError(t, err)
	lock.Close()
}

// A folder that cannot be created, or not be written to, is an error.
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
	require.False(t, errors.Is(err, errHeld))
}
