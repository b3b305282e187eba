package persist

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// example is a folder with a snapshot and two segments, and the states of its store at the ends of
// all passes since the snapshot.
func example(t *testing.T) (d *disk, history []state) {
	p := mustStart(t, newDisk(), Options{})
	p.store.set("1", "a", "b", "c", "d", "e")
	p.r.compaction.requested = true
	p.tick()
	p.finish()
	p.store.set("2", "a", "b")
	p.tick()
	p.store.set("3", "b", "c")
	require.NoError(t, p.close())
	history = append(history, p.store.history...)
	p = mustStart(t, p.disk.killed(), Options{})
	p.store.set("4", "c", "d")
	p.tick()
	p.store.set("5", "d", "e")
	require.NoError(t, p.close())
	names, _ := p.disk.list()
	require.Equal(t, []string{"journal-0000000002", "journal-0000000003", "snapshot-0000000002-0000000005"}, names)
	return p.disk.killed(), append(history, p.store.history...)
}

// damaged returns a copy of a disk with other content in one file, or without that file.
func (d *disk) damaged(name string, content []byte) *disk {
	c := d.killed()
	if content == nil {
		delete(c.names, name)
	} else {
		c.names[name].content = content
	}
	return c
}

// eachDamage calls try for each way to flip a byte, to cut off a file, and to remove it.
func (d *disk) eachDamage(try func(d *disk, what string, cut bool)) {
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		content := d.names[name].content
		for i := range content {
			flipped := bytes.Clone(content)
			flipped[i] ^= 1 << (i % 8)
			try(d.damaged(name, flipped), fmt.Sprintf("%s, byte %d", name, i), false)
			try(d.damaged(name, content[:i]), fmt.Sprintf("%s cut at %d", name, i), true)
		}
		try(d.damaged(name, nil), name+" removed", true)
	}
}

// undetectedDamage returns the first damage with which a process starts with wrong keys, and the
// number of damages with which it does not start. Each start must either fail with a Fault, or load
// the state after the last pass. A truncated file may look like one that a crash has left: then a
// start may load the state after an earlier pass.
func undetectedDamage(d *disk, history []state, o Options) (what string, refused int) {
	final := history[len(history)-1]
	d.eachDamage(func(d *disk, damage string, cut bool) {
		p, err := start(d, o)
		var fault *Fault
		right := errors.As(err, &fault)
		if right {
			refused++
		}
		if err == nil && cut {
			right = slices.ContainsFunc(history, func(s state) bool { return maps.Equal(s, p.store.keys) })
		} else if err == nil {
			right = maps.Equal(final, p.store.keys)
		}
		if !right && what == "" {
			what = damage
		}
	})
	return what, refused
}

// A process does not start with a damaged folder, unless the damage is like that of a crash. It
// never loads wrong keys.
func TestDamage(t *testing.T) {
	d, history := example(t)
	what, refused := undetectedDamage(d, history, Options{})
	require.Empty(t, what)
	require.Greater(t, refused, 1000)
	what, _ = undetectedDamage(d, history, Options{StartWithFault: true})
	require.NotEmpty(t, what, "the checker finds a process that starts nevertheless")
}

// isFrom reports whether each key has a value that it had at some time.
func (s state) isFrom(history []state) bool {
	for key, value := range s {
		if !slices.ContainsFunc(history, func(h state) bool { return h[key] == value }) {
			return false
		}
	}
	return true
}

// A damaged folder can be repaired. The damaged files are kept.
func TestStartWithFault(t *testing.T) {
	d, history := example(t)
	d.eachDamage(func(d *disk, what string, cut bool) {
		_, err := start(d.killed(), Options{})
		p, mended := start(d, Options{StartWithFault: true})
		require.NoError(t, mended, what)
		require.True(t, p.store.keys.isFrom(history), what)
		names, _ := d.list()
		kept := slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, brokenSuffix) })
		if !strings.Contains(what, "removed") {
			require.Equal(t, err != nil, kept, what)
		}
		p.store.set("6", "f")
		require.NoError(t, p.close())
		q := mustStart(t, d.powerFailure(), Options{})
		require.Equal(t, p.store.keys, q.store.keys, what)
	})
}

// A crash during a repair leaves a folder that can be repaired.
func TestCrashDuringRepair(t *testing.T) {
	d, history := example(t)
	i := 0
	d.eachDamage(func(d *disk, what string, cut bool) {
		if i++; i%17 != 0 { // a sample
			return
		}
		for n := 1; ; n++ {
			c := d.killed()
			c.crashAt = n
			if _, err := start(c, Options{StartWithFault: true}); err == nil {
				return
			}
			for _, left := range []*disk{c.killed(), c.powerFailure()} {
				p, err := start(left, Options{StartWithFault: true})
				require.NoError(t, err, "%s, crash at %d", what, n)
				require.True(t, p.store.keys.isFrom(history), what)
			}
		}
	})
}

// write writes the files of a disk into a folder of the operating system.
func (d *disk) write(t *testing.T, dir string) {
	for name, n := range d.names {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), n.content, 0o600))
	}
}

func TestCheck(t *testing.T) {
	d, _ := example(t)
	dir := t.TempDir()
	check := func(fix bool) (string, error) {
		var out bytes.Buffer
		err := Check(&out, dir, fix, "", newToyVerifier)
		return strings.ReplaceAll(out.String(), dir, "DIR"), err
	}
	d.write(t, dir)
	out, err := check(false)
	require.NoError(t, err)
	require.Equal(t, `snapshot-0000000002-0000000005: snapshot, 188 bytes, valid with pass 5
journal-0000000002: segment, 504 bytes, passes 4 to 8
journal-0000000003: segment, 424 bytes, passes 9 to 12
DIR is complete: a server can start with it
`, out)

	d.names["journal-0000000002"].content[244]++
	d.names["snapshot-0000000002-0000000005"].content[184]++
	d.write(t, dir)
	out, err = check(false)
	var fault *Fault
	require.ErrorAs(t, err, &fault)
	require.Contains(t, out, "journal-0000000002: at byte 1")
	require.Contains(t, out, "journal-0000000003: cannot be used after that\n")
	before := listDirectory(t, dir)
	require.Len(t, before, 3)

	out, err = check(true)
	require.NoError(t, err)
	require.Contains(t, out, "snapshot-0000000002-0000000004: at byte 88: the payload is damaged\n")
	require.Contains(t, out, "DIR is complete")
	out, err = check(false)
	require.NoError(t, err, out)
	require.Len(t, listDirectory(t, dir), 5)
}

// Check describes a folder that is in use, but does not repair it.
func TestCheckInUse(t *testing.T) {
	dir := t.TempDir()
	f, err := Open(ctx, dir, Options{})
	require.NoError(t, err)
	defer f.Close()
	var out bytes.Buffer
	require.NoError(t, Check(&out, filepath.Join(dir, lockName), false, "", newToyVerifier))
	require.Contains(t, out.String(), "is in use by process")
	var locked *LockedError
	require.ErrorAs(t, Check(&out, dir, true, "", newToyVerifier), &locked)
	require.Error(t, Check(&out, filepath.Join(dir, "nothing"), false, "", newToyVerifier))
}

// A load returns the error of its context, or of its loader.
func TestLoadFails(t *testing.T) {
	d, _ := example(t)
	env := environment{files: d, machine: &toyMachine{}, ticks: noTicks, unlock: func() {}, busy: new(atomic.Int32)}
	f, err := open("test", Options{Log: discard}, env)
	require.NoError(t, err)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, f.Load(canceled, &toyLoader{s: newToyStore(nil)}), context.Canceled)
	require.ErrorIs(t, f.Load(ctx, failingLoader{}), errApply)
	require.False(t, f.Status().Loading.Active)
	require.ErrorIs(t, f.Run(nil, nil), ErrNotRunning)
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
}

var errApply = errors.New("an entry is invalid")

type failingLoader struct{}

func (failingLoader) Apply([]byte) error { return errApply }
func (failingLoader) Done() error        { return nil }
