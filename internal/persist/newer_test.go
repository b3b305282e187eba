package persist

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/entry"
	"cellserver/internal/form"
	"cellserver/internal/journal"
	"cellserver/internal/limit"
	"cellserver/internal/store/memory"
	"cellserver/internal/window"
)

// newVerifier returns a loader for Check.
func newVerifier() Loader { return memory.New(memory.Options{Databases: 1}).Verify() }

// writeSegment writes the only segment of a folder, with a pass of some entries.
func writeSegment(t *testing.T, dir, program string, entries []byte) {
	f, err := os.Create(filepath.Join(dir, segmentName(1)))
	require.NoError(t, err)
	w, err := journal.Create(f, journal.Header{Program: program, Mark: 1, Number: 1, First: 1})
	require.NoError(t, err)
	require.NoError(t, w.Begin(journal.Stamp{}))
	require.NoError(t, w.Append(entries))
	require.NoError(t, w.End(true))
	require.NoError(t, f.Close())
}

// content returns the content of all files of a folder.
func content(t *testing.T, dir string) map[string]string {
	all := map[string]string{}
	for _, name := range listDirectory(t, dir) {
		bytes, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		all[name] = string(bytes)
	}
	delete(all, lockName)
	return all
}

// requireVerdict checks that a start, a start with --dir-fault start, a check and a repair refuse a folder
// with the same error, and leave its files as they are.
func requireVerdict(t *testing.T, dir, want string) {
	t.Helper()
	before := content(t, dir)
	for _, o := range []Options{{}, {StartWithFault: true}} {
		o.Version = "1.0.0"
		f, err := Open(ctx, dir, o)
		if err == nil {
			data := memory.New(memory.Options{Databases: 16, Clock: f.Clock()})
			err = f.Load(ctx, data.Load())
			require.NoError(t, f.Close())
			require.NoError(t, data.Close())
		}
		require.EqualError(t, err, want)
	}
	for _, fix := range []bool{false, true} {
		require.EqualError(t, Check(&bytes.Buffer{}, dir, fix, "1.0.0", newVerifier), want)
	}
	require.Equal(t, before, content(t, dir))
}

// A file of a later version is named as such. It is not damaged, so it is not repaired.
func TestNewerFiles(t *testing.T) {
	const wrote = "; cellserver 2.3.0 wrote it, and can read it; this is cellserver 1.0.0"
	unknownForm, err := hex.DecodeString("66010166" + "00000005" + "00636c3266")
	require.NoError(t, err)
	for want, entries := range map[string][]byte{
		"at byte 1 of the entries: no entry is of the kind 'z'":                     []byte("z"),
		`key "f": the form "\x00cl2" is unknown: it was written by a newer version`: unknownForm,
	} {
		dir := t.TempDir()
		if entries[0] == 'z' {
			entries = []byte("z\x01\x00")
			want = "at byte 3 of the entries: no entry is of the kind 'z'"
		}
		writeSegment(t, dir, "2.3.0", entries)
		requireVerdict(t, dir, segmentName(1)+": "+want+wrote)
	}
}

// A segment or a snapshot of a later version of the format is named as such too.
func TestNewerFormat(t *testing.T) {
	for _, name := range []string{segmentName(1), snapshotName(1, 1)} {
		dir := t.TempDir()
		writeSegment(t, dir, "2.3.0", nil)
		path := filepath.Join(dir, segmentName(1))
		file, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, append([]byte("cljrnl3\n"), file[8:]...), 0o600))
		require.NoError(t, os.Rename(path, filepath.Join(dir, name)))
		var fault *Fault
		require.ErrorAs(t, Check(&bytes.Buffer{}, dir, false, "1.0.0", newVerifier), &fault, "only the digit is wrong")
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("cljrnl3\nof another length"), 0o600))
		requireVerdict(t, dir, name+": it has version 3 of the format, and this program knows versions up to 2; "+
			"a newer cellserver wrote it, and can read it; this is cellserver 1.0.0")
	}
}

// Check finds changes to missing states, which only a load can find.
func TestCheckFindsMissingStates(t *testing.T) {
	dir := t.TempDir()
	writeSegment(t, dir, "1.0.0", entry.AppendDatabases(entry.AppendLogDelta(nil, 1, []byte("log"), &entry.LogChanges{
		From: 1, To: 2, Kept: 1, End: 9, Until: 9, Added: []window.Entry{{Total: 1, At: 8}}}), []uint64{1}))
	const want = `journal-0000000001: the last changes of 1 keys, such as "log", apply to states that are missing`
	require.EqualError(t, Check(&bytes.Buffer{}, dir, false, "1.0.0", newVerifier), want)
	require.EqualError(t, Check(&bytes.Buffer{}, dir, true, "1.0.0", newVerifier),
		want+"; no file is damaged any more: a server with --dir-fault start leaves these keys out")
}

// Check keeps only the states of long logs and of many leases.
func TestVerifierKeepsLittle(t *testing.T) {
	data := memory.New(memory.Options{Databases: 1})
	defer data.Close()
	l := data.Verify()
	state := form.State{Kind: limit.Fixed, Plain: limit.OfFixed(window.Fixed{Start: 5, Used: 2, End: 9})}
	entries := entry.AppendLimiter(entry.AppendBytes(nil, 1, []byte("b"), 1<<62, []byte("v")), 1, []byte("f"), &state)
	require.NoError(t, l.Apply(entry.AppendDatabases(entries, []uint64{1})))
	require.NoError(t, l.Done())
	require.Empty(t, dump(t, data))
}
