package persist

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// copyOf is a copy of a folder, in which a process has made its own changes.
type copyOf struct {
	disk    *disk
	history []state
}

// continued starts processes on a copy of a folder, one after the other. Each writes passes, and
// compacts says which of them write a snapshot.
func (d *disk) continued(t *testing.T, value string, compacts ...bool) copyOf {
	c := copyOf{disk: d.killed()}
	for i, compact := range compacts {
		p := mustStart(t, c.disk, Options{})
		p.store.set(fmt.Sprint(value, i), "a", value)
		p.tick()
		if p.r.compaction.requested = compact; compact {
			p.tick()
			p.finish()
		}
		p.store.set(fmt.Sprint(value, i), "b", value+"2")
		require.NoError(t, p.close())
		c.disk, c.history = p.disk.killed(), append(c.history, p.store.history...)
	}
	return c
}

// with returns a copy of a disk, with files of another disk over its own.
func (d *disk) with(from *disk, names ...string) *disk {
	c := d.killed()
	for _, name := range names {
		c.names[name] = from.killed().names[name]
	}
	c.synced = maps.Clone(c.names)
	return c
}

// withAll does what with does, for all files.
func (d *disk) withAll(from *disk) *disk {
	return d.with(from, slices.Collect(maps.Keys(from.names))...)
}

// mixed calls try with each folder that has some files of one copy over another copy's files.
func (c copyOf) mixed(over copyOf, try func(d *disk, what string)) {
	names := slices.Sorted(maps.Keys(c.disk.names))
	for which := range 1 << len(names) {
		var chosen []string
		for i, name := range names {
			if which>>i&1 == 1 {
				chosen = append(chosen, name)
			}
		}
		try(over.disk.with(c.disk, chosen...), fmt.Sprint(chosen))
	}
}

// A folder into which files of another copy were copied is refused, or has the keys that one of the
// copies had at some time.
func TestHistoriesDoNotMix(t *testing.T) {
	d, _ := example(t)
	yes, no := true, false
	shapes := [][]bool{{no}, {no, no}, {no, no, no}, {yes}, {no, yes}, {yes, no}, {yes, yes, no}}
	refused := 0
	for i, shape := range shapes {
		for j, other := range shapes {
			a, b := d.continued(t, "x", shape...), d.continued(t, "y", other...)
			b.mixed(a, func(mixed *disk, what string) {
				p, err := start(mixed, Options{})
				var fault *Fault
				if errors.As(err, &fault) {
					refused++
					return
				}
				require.NoError(t, err)
				is := func(s state) bool { return maps.Equal(s, p.store.keys) }
				require.True(t, slices.ContainsFunc(slices.Concat(a.history, b.history), is),
					"%s of %d over %d: %v", what, j, i, p.store.keys)
			})
		}
	}
	require.Greater(t, refused, 100)
}

// The error of a mixed folder says what to do.
func TestMixedFolderIsNamed(t *testing.T) {
	d, _ := example(t)
	a, b := d.continued(t, "x", false, false), d.continued(t, "y", false)
	_, err := start(a.disk.withAll(b.disk), Options{})
	require.EqualError(t, err, "test is damaged: journal-0000000005: it continues another file than this journal-0000000004: "+
		"files of several copies of the folder are mixed; restore one copy, alone in the folder")
	a, b = d.continued(t, "x", true), d.continued(t, "y", false)
	_, err = start(a.disk.withAll(b.disk), Options{})
	require.ErrorContains(t, err, "snapshot-0000000002-0000000005: it is older than snapshot-0000000005-0000000018, and would not")
}

// An older backup that is copied over the folder is not ignored. A repair keeps its files.
func TestOlderBackupOverFolder(t *testing.T) {
	d, _ := example(t)
	newer := d.continued(t, "x", true, false)
	both := newer.disk.withAll(d)
	_, err := start(both.killed(), Options{})
	require.EqualError(t, err, "test is damaged: snapshot-0000000002-0000000005: it is older than "+
		"snapshot-0000000005-0000000018, and would not be loaded; if it is of a backup that is to be loaded, "+
		"put the files of the backup alone into the folder")
	p := mustStart(t, both, Options{StartWithFault: true})
	require.Equal(t, newer.history[len(newer.history)-1], p.store.keys)
	names, _ := both.list()
	require.Subset(t, names, []string{"journal-0000000002.broken", "journal-0000000003.broken",
		"snapshot-0000000002-0000000005.broken"})
}

// Files that a crash has left after a snapshot are removed, with a line in the log.
func TestReplacedFilesAreRemoved(t *testing.T) {
	d, _ := example(t)
	newer := d.continued(t, "x", true)
	both := newer.disk.with(d, "snapshot-0000000002-0000000005", "journal-0000000002")
	o, log := logged()
	p := mustStart(t, both, o)
	require.Equal(t, newer.history[len(newer.history)-1], p.store.keys)
	require.Equal(t, `msg="files that a later snapshot has replaced are removed; to load a backup, put its files `+
		`alone into the folder" files="[snapshot-0000000002-0000000005 journal-0000000002]" `+
		`snapshot=snapshot-0000000005-0000000018`, log()[0])
	names, _ := both.list()
	require.NotContains(t, names, "journal-0000000002")
}
