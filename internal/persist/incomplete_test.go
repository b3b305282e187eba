package persist

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
	"cellserver/internal/window"
)

// The passes of a segment, up to the pass that makes the snapshot valid, may contain a delta of a
// long log whose baseline was only in earlier segments. If the pass with the whole state is
// damaged, a repair leaves a delta without its baseline. A process can start without that log, and
// a snapshot then replaces the segment.
func TestStartWithoutWhatIsMissing(t *testing.T) {
	dir := damageLongLog(t)
	var fault *Fault
	_, err := openStore(t, dir, Options{})
	require.ErrorAs(t, err, &fault)

	require.ErrorContains(t, Check(&bytes.Buffer{}, dir, true, "", newVerifier), "leaves these keys out")
	_, err = openStore(t, dir, Options{})
	require.ErrorAs(t, err, &fault)
	require.ErrorContains(t, err, `of 1 keys, such as "long log", apply to states that are missing`)

	f, err := openStore(t, dir, Options{StartWithFault: true})
	require.NoError(t, err)
	for f.Status().Journal.LastCompaction == none {
		runtime.Gosched()
	}
	require.NoError(t, f.Close())
	f, err = openStore(t, dir, Options{})
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// openStore is like openReal, but returns an error, and calls the recorder for one tick.
func openStore(t *testing.T, dir string, o Options) (*Folder, error) {
	f, err := Open(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	data := memory.New(memory.Options{Databases: 16, Clock: f.Clock()})
	t.Cleanup(func() { data.Close() })
	if err := f.Load(ctx, data.Load()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	ticks := make(chan time.Time, 1)
	ticks <- time.Time{}
	f.ticks = func() (<-chan time.Time, func()) { return ticks, func() {} }
	return f, f.Run(data, nil)
}

// damageLongLog returns a folder with a snapshot and a segment. The segment begins with a delta of
// a long log, and the pass with all of it is damaged.
func damageLongLog(t *testing.T) (dir string) {
	dir = t.TempDir()
	f, err := Open(ctx, dir, Options{})
	require.NoError(t, err)
	data := memory.New(memory.Options{Databases: 16, Clock: f.Clock()})
	defer data.Close()
	require.NoError(t, f.Load(ctx, data.Load()))
	begin := f.launch
	f.launch = func(snapshot func()) {
		begin(func() {
			takeFromLongLog(t, data)
			require.NoError(t, f.Flush())
			snapshot()
		})
	}
	require.NoError(t, f.Run(data, nil))
	fill(t, data)
	require.NoError(t, f.Compact())
	for f.Status().Journal.LastCompaction == none {
		runtime.Gosched()
	}
	require.NoError(t, f.Close())
	segment := filepath.Join(dir, segmentName(2))
	content, err := os.ReadFile(segment)
	require.NoError(t, err)
	content[bytes.LastIndex(content, []byte("long log"))]++
	require.NoError(t, os.WriteFile(segment, content, 0o600))
	return dir
}

func takeFromLongLog(t *testing.T, data store.Store) {
	rate, err := window.NewLogLimit(5000, 3600, 5000)
	require.NoError(t, err)
	rule := limit.Rule{Kind: limit.SlidingLog, Log: rate}
	v := data.View()
	v.Begin()
	_, err = v.Take(ctx, []byte("long log"), &rule, 1, quota.Take)
	require.NoError(t, err)
}

// failingOnce fails to create the first snapshot.
type failingOnce struct {
	files
	failed bool
}

func (f *failingOnce) create(name string) (file, error) {
	if name == temporaryName && !f.failed {
		f.failed = true
		return nil, errors.New("the disk is full")
	}
	return f.files.create(name)
}

// If the snapshot that replaces damaged files fails, it is tried again, at the latest before the
// process ends, because the next startup would be refused.
func TestSnapshotAfterAFaultIsTriedAgain(t *testing.T) {
	for _, ticking := range []bool{true, false} {
		dir := damageLongLog(t)
		require.ErrorContains(t, Check(&bytes.Buffer{}, dir, true, "", newVerifier), "leaves these keys out")
		f, err := Open(ctx, dir, Options{StartWithFault: true})
		require.NoError(t, err)
		data := memory.New(memory.Options{Databases: 16, Clock: f.Clock()})
		defer data.Close()
		require.NoError(t, f.Load(ctx, data.Load()))
		ticks := make(chan time.Time)
		f.ticks = func() (<-chan time.Time, func()) { return ticks, func() {} }
		f.files = &failingOnce{files: f.files}
		require.NoError(t, f.Run(data, nil))
		for ticking && f.Status().Journal.LastCompaction == none {
			ticks <- time.Time{}
		}
		require.NoError(t, f.Close())
		f, err = openStore(t, dir, Options{})
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
}

// Each process begins a segment. The segments are replaced even if no process lives for a second.
func TestShortLivesLeaveFewSegments(t *testing.T) {
	dir := t.TempDir()
	for range 100 {
		f, err := Open(ctx, dir, Options{})
		require.NoError(t, err)
		data := memory.New(memory.Options{Databases: 16, Clock: f.Clock()})
		require.NoError(t, f.Load(ctx, data.Load()))
		f.ticks = func() (<-chan time.Time, func()) { return nil, func() {} }
		f.limits.maxSegments = 4
		require.NoError(t, f.Run(data, nil))
		require.NoError(t, f.Close())
		require.NoError(t, data.Close())
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Less(t, len(files), 4*4+5)
}
