package persist

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/calendar"
	"cellserver/internal/form"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/rdb"
	"cellserver/internal/standing"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
	"cellserver/internal/window"
)

// openReal opens a folder of the operating system, loads a store and keeps it there.
func openReal(t *testing.T, dir string) (*Folder, *memory.Store) {
	t.Helper()
	f, err := Open(ctx, dir, Options{})
	require.NoError(t, err)
	data := memory.New(memory.Options{Databases: 16, Clock: f.Clock()})
	t.Cleanup(func() { data.Close() })
	require.ErrorIs(t, f.Run(data, nil), ErrNotRunning)
	require.NoError(t, f.Load(ctx, data.Load()))
	require.NoError(t, f.Run(data, nil))
	t.Cleanup(func() { f.Close() })
	return f, data
}

// fill writes keys of every kind.
func fill(t *testing.T, data store.Store) {
	v := data.View()
	v.Begin()
	hour := time.Hour
	write := func(key string, value store.Value, expires int64) {
		require.NoError(t, v.Write(ctx, []byte(key), value, expires))
	}
	write("bytes", store.Value{Bytes: []byte("\x00\xff text")}, store.Never)
	write("empty", store.Value{Bytes: []byte{}}, v.Now()+int64(hour))
	write("large", store.Value{Bytes: bytes.Repeat([]byte("0123456789"), 100_000)}, store.Never)
	write("integer", store.Value{Integer: -42, IsInteger: true}, v.Now()+int64(2*hour))
	write("longest", store.Value{Integer: -1 << 63, IsInteger: true}, store.Never)
	throttle, err := gcra.NewLimit(10, 20, 3600)
	require.NoError(t, err)
	fixed, err := window.NewLimit(100, 3600)
	require.NoError(t, err)
	log, err := window.NewLogLimit(5000, 3600, 5000)
	require.NoError(t, err)
	for name, rule := range map[string]limit.Rule{
		"throttle": {Kind: limit.Throttle, Throttle: throttle},
		"fixed":    {Kind: limit.Fixed, Window: fixed},
		"sliding":  {Kind: limit.Sliding, Window: fixed},
		"log":      {Kind: limit.SlidingLog, Log: log},
		"quota":    {Kind: limit.Quota, Window: fixed, Cycle: calendar.Every(31 * 365 * 24 * time.Hour)},
	} {
		for range 3 {
			_, err := v.Take(ctx, []byte(name), &rule, 1, quota.Take)
			require.NoError(t, err)
		}
	}
	rule := limit.Rule{Kind: limit.SlidingLog, Log: log}
	for range 1000 {
		v.Begin()
		_, err := v.Take(ctx, []byte("long log"), &rule, 1, quota.Take)
		require.NoError(t, err)
	}
	for i := range 100 {
		r, err := lease.NewRequest(1000, 3600, fmt.Append(nil, "holder", i), 1)
		require.NoError(t, err)
		_, err = v.Acquire(ctx, []byte("leases"), r, 1000)
		require.NoError(t, err)
	}
	require.NoError(t, v.EditStanding(ctx, []byte("standing"), func(now int64, s standing.State) standing.State {
		return s.BanFor(now, int64(hour), "too many requests").ExemptFor(now, int64(2*hour), "")
	}))
	v.Select(15)
	write("bytes", store.Value{Bytes: []byte("of another database")}, store.Never)
}

// dump returns the content of a store, as text.
func dump(t *testing.T, data store.Store) map[string]string {
	all := map[string]string{}
	v := data.View()
	for n := range data.Databases() {
		v.Begin()
		v.Select(n)
		var keys []string
		for cursor := uint64(0); ; {
			next, err := v.Scan(ctx, cursor, 100, func(key []byte, e store.Entry) { keys = append(keys, string(key)) })
			require.NoError(t, err)
			if cursor = next; cursor == 0 {
				break
			}
		}
		for _, key := range keys {
			value, e, err := v.Read(ctx, []byte(key), nil)
			require.NoError(t, err)
			state, _, err := v.ReadForm(ctx, []byte(key), nil)
			require.NoError(t, err)
			if e.Kind == limit.Quota { // its state contains its end, in Unix time
				e.Expires = 0
			}
			all[fmt.Sprint(n, " ", key)] = fmt.Sprintf("%v %d %q %x", e.Kind, e.Expires, value, state)
		}
	}
	return all
}

// Keys of every kind survive a restart, in the journal and in a snapshot.
func TestEveryKind(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	f, data := openReal(t, dir)
	fill(t, data)
	want := dump(t, data)
	require.Len(t, want, 14)
	require.NoError(t, f.Close())
	require.ErrorIs(t, f.Flush(), ErrNotRunning)

	f, data = openReal(t, dir)
	require.Equal(t, want, dump(t, data), "by the journal")
	require.NoError(t, f.Compact())
	for f.Status().Journal.BaseSize == 0 { // the compaction takes three syncs
		require.NoError(t, f.Flush())
	}
	require.NoError(t, f.Close())
	names := listDirectory(t, dir)
	require.Len(t, names, 3, "%v", names)

	f, data = openReal(t, dir)
	require.Equal(t, want, dump(t, data), "by the snapshot")
	v := data.View()
	v.Begin()
	require.NoError(t, v.Flush(ctx))
	require.NoError(t, v.Write(ctx, []byte("only"), store.Value{Bytes: []byte("key")}, store.Never))
	require.NoError(t, v.(store.Swapper).Swap(ctx, 0, 15))
	want = dump(t, data)
	require.NoError(t, f.Close())
	_, data = openReal(t, dir)
	require.Equal(t, want, dump(t, data), "after FLUSHDB and SWAPDB")
}

// The keys of a snapshot are loaded although a repair had to leave out the passes that complete it.
func TestSnapshotWithoutItsPasses(t *testing.T) {
	dir := t.TempDir()
	f, data := openReal(t, dir)
	fill(t, data)
	want := dump(t, data)
	require.NoError(t, f.Compact())
	for f.Status().Journal.BaseSize == 0 { // the compaction takes three syncs
		require.NoError(t, f.Flush())
	}
	require.NoError(t, f.Close())
	for _, name := range listDirectory(t, dir) {
		if strings.HasPrefix(name, "journal-") {
			require.NoError(t, os.Remove(filepath.Join(dir, name)))
		}
	}
	newLoader := func() Loader {
		data := memory.New(memory.Options{Databases: 16})
		t.Cleanup(func() { data.Close() })
		return data.Load()
	}
	require.Error(t, Check(io.Discard, dir, false, "test", newLoader))
	require.NoError(t, Check(io.Discard, dir, true, "test", newLoader))
	_, data = openReal(t, dir)
	require.Equal(t, want, dump(t, data))
}

func listDirectory(t *testing.T, dir string) []string {
	names, err := directory(dir).list()
	require.NoError(t, err)
	return names
}

// Only the user of the server can read the files.
func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "folder")
	f, data := openReal(t, dir)
	fill(t, data)
	require.NoError(t, f.SaveRDB("dump.rdb"))
	stat, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), stat.Mode().Perm())
	require.Equal(t, []string{"dump.rdb", "journal-0000000001", "lock"}, listDirectory(t, dir))
	for _, name := range listDirectory(t, dir) {
		stat, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), stat.Mode().Perm(), name)
	}
}

// An RDB file contains strings and integers as such, and limiters as strings.
func TestSaveRDB(t *testing.T) {
	dir := t.TempDir()
	clock := store.NewStillClock(int64(1000 * time.Second))
	clock.SetOffset(500 * time.Millisecond)
	data := memory.New(memory.Options{Databases: 16, Clock: clock})
	defer data.Close()
	f, err := Open(ctx, dir, Options{})
	require.NoError(t, err)
	defer f.Close()
	require.ErrorIs(t, f.SaveRDB("dump.rdb"), ErrNotRunning)
	require.NoError(t, f.Load(ctx, data.Load()))
	require.NoError(t, f.Run(data, nil))
	fill(t, data)
	require.NoError(t, f.SaveRDB("dump.rdb"))
	for _, name := range []string{"", ".", "..", "a/b", "lock", "journal-0000000001", "rdb.tmp", "x.broken2"} {
		require.Error(t, f.SaveRDB(name), name)
	}
	status := f.Status().RDB
	require.Equal(t, int64(1), status.Saves)
	require.False(t, status.Saving)
	require.False(t, status.LastSaveFailed)
	require.Positive(t, status.LastDuration)

	keys := readRDB(t, filepath.Join(dir, "dump.rdb"))
	require.Len(t, keys, 14)
	end := int64(1000*time.Second+time.Hour)/1e6 + 500
	require.Equal(t, "\x00\xff text", string(keys["0 bytes"].Bytes))
	require.Equal(t, "of another database", string(keys["15 bytes"].Bytes))
	require.Equal(t, int64(-42), keys["0 integer"].Integer)
	require.Equal(t, end+3600_000, keys["0 integer"].Expires)
	require.Equal(t, rdb.Never, keys["0 large"].Expires)
	tat, ok := form.ParseTAT(keys["0 throttle"].Bytes)
	require.True(t, ok, "redis-cell's format")
	require.Equal(t, form.Milliseconds(tat), keys["0 throttle"].Expires)
	require.Equal(t, int64(1000*time.Second+500*time.Millisecond+3*time.Hour/20), tat)
	var state form.State
	require.NoError(t, state.Read(keys["0 leases"].Bytes, 0))
	require.Len(t, state.Leases, 100)
	require.Equal(t, end, state.Leases[0].End/1e6)
	require.Equal(t, end, keys["0 leases"].Expires)
	require.NoError(t, state.Read(keys["0 quota"].Bytes, 0))
	require.Equal(t, limit.Quota, state.Kind)
}

// readRDB returns the keys of a file, by database and name.
func readRDB(t *testing.T, path string) map[string]rdb.Record {
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	r := rdb.NewReader(bytes.NewReader(content))
	keys := map[string]rdb.Record{}
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return keys
		}
		require.NoError(t, err)
		rec.Key, rec.Bytes = slices.Clone(rec.Key), slices.Clone(rec.Bytes)
		name := fmt.Sprint(rec.Database, " ", string(rec.Key))
		require.NotContains(t, keys, name, "redis-server does not load a file with two keys of one name")
		keys[name] = rec
	}
}

// Passes, a snapshot and an RDB file are written while clients make steps. This test is for the
// race detector.
func TestConcurrently(t *testing.T) {
	dir := t.TempDir()
	f, data := openReal(t, dir)
	work, stop := context.WithCancel(ctx)
	begun, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		v := data.View()
		for i := 0; work.Err() == nil; i++ {
			if i == 1000 {
				close(begun)
			}
			v.Begin()
			v.Select(i % 3)
			if i%7 == 0 {
				v.Delete(ctx, [][]byte{fmt.Append(nil, i%1000)})
			}
			v.Write(ctx, fmt.Append(nil, i%1000), store.Value{Integer: int64(i), IsInteger: true}, store.Never)
			runtime.Gosched() // a session also yields, when it waits for its client
		}
	}()
	<-begun // on a busy machine, the file would otherwise be written before any key
	require.NoError(t, f.Flush())
	require.NoError(t, f.Compact())
	require.NoError(t, f.BeginSaveRDB("dump.rdb"))
	for f.Status().Journal.BaseSize == 0 || f.Status().RDB.Saves == 0 {
		require.NoError(t, f.Flush())
	}
	stop()
	<-done
	want := dump(t, data)
	require.NotEmpty(t, readRDB(t, filepath.Join(dir, "dump.rdb")))
	require.NoError(t, f.Close())
	_, data = openReal(t, dir)
	require.True(t, maps.Equal(want, dump(t, data)))
}

// Writing a file does not use a key, as in Redis: OBJECT IDLETIME stays as it is.
func TestSaveIsNoUse(t *testing.T) {
	clock := store.NewStillClock(time.Now().UnixNano())
	data := memory.New(memory.Options{Clock: clock})
	defer data.Close()
	fill(t, data)
	clock.Advance(10 * time.Second)
	require.NoError(t, WriteRDB(ctx, io.Discard, data))
	v := data.View()
	v.Begin()
	var keys []string
	_, err := v.Scan(ctx, 0, 1<<20, func(key []byte, _ store.Entry) { keys = append(keys, string(key)) })
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	for _, key := range keys {
		idle, found, err := v.(store.IdleTracker).Idle(ctx, []byte(key))
		require.NoError(t, err)
		require.True(t, found)
		require.Greater(t, idle, 8*time.Second, key)
	}
}
