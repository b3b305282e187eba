package journal

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

const sectorBytes = 512

// disk is a file on a simulated disk that can fail and lose power.
type disk struct {
	content []byte // as a process reads it
	synced  []byte // as it was at the last sync
	dirty   map[int]bool
	room    int // bytes that fit; more than that is errFull
	broken  bool
	lies    bool // syncs do nothing
}

var (
	errFull   = errors.New("no space left")
	errBroken = errors.New("broken disk")
)

func newDisk() *disk { return &disk{dirty: map[int]bool{}, room: 1 << 40} }

func (d *disk) WriteAt(p []byte, offset int64) (n int, err error) {
	end := int(offset) + len(p)
	if end > d.room {
		end, err = max(d.room, int(offset)), errFull
	}
	if end > len(d.content) {
		d.content = append(d.content, make([]byte, end-len(d.content))...)
	}
	n = copy(d.content[offset:end], p)
	for sector := int(offset) / sectorBytes; sector*sectorBytes < end; sector++ {
		d.dirty[sector] = true
	}
	return n, err
}

func (d *disk) Truncate(size int64) error {
	if d.broken {
		return errBroken
	}
	d.content = d.content[:size]
	return nil
}

func (d *disk) Sync() error {
	if d.broken {
		return errBroken
	}
	if d.lies {
		return nil
	}
	d.synced = bytes.Clone(d.content)
	clear(d.dirty)
	return nil
}

// lose returns the content of the disk after a power failure: everything that was synced, and some
// of the sectors that were written since, in any order. The other sectors contain zeros, or
// anything.
func (d *disk) lose(random *rand.Rand) []byte {
	size := len(d.synced)
	if len(d.content) > size {
		size += random.IntN(len(d.content) - size + 1)
	}
	left := make([]byte, size)
	if random.IntN(2) == 0 {
		for i := range left {
			left[i] = byte(random.Uint32())
		}
	}
	copy(left, d.synced)
	for sector := range d.dirty {
		if from := sector * sectorBytes; random.IntN(2) == 0 && from < size && from < len(d.content) {
			copy(left[from:min(from+sectorBytes, size)], d.content[from:])
		}
	}
	return left
}

// passes are the expected passes of a segment.
type passes []pass

type pass struct {
	number  uint64
	stamp   Stamp
	entries string
}

func stampOf(number uint64) Stamp {
	return Stamp{Boot: [16]byte{'b', 15: byte(number)}, Uptime: int64(number), Wall: -int64(number), Clock: 1 << 60}
}

var header = Header{
	Version: 2, Program: "1.2.3", Folder: 0xfedcba9876543210, Previous: Link{0x1122334455667788, 0x99aabbcc},
	Mark: 0x0123456789abcdef, Number: 3, First: 7, Synced: 6,
}

// segmentHeaderBytes is the size of a segment's header.
const segmentHeaderBytes = 88

// write writes a pass of some entries.
func (p *passes) write(t require.TestingT, w *Writer, sync bool, entries ...string) {
	number := w.Next()
	require.NoError(t, w.Begin(stampOf(number)))
	all := ""
	for _, entry := range entries {
		require.NoError(t, w.Append([]byte(entry)))
		all += entry
	}
	require.NoError(t, w.End(sync))
	*p = append(*p, pass{number, stampOf(number), all})
}

// requireHolds reads a segment up to its last complete pass, and compares its passes with want.
func requireHolds(t require.TestingT, want passes, file []byte, s Summary) {
	if found, err := contents(file, s); err != nil || !slices.Equal(found, want) {
		require.NoError(t, err)
		require.Equal(t, append(passes{}, want...), append(passes{}, found...))
	}
}

// read returns the passes of a segment, up to the last complete pass.
func read(t require.TestingT, file []byte, s Summary) passes {
	all, err := contents(file, s)
	require.NoError(t, err)
	return all
}

// contents returns the passes of a segment.
func contents(file []byte, s Summary) (all passes, err error) {
	err = Replay(bytes.NewReader(file), s, func(number uint64, stamp Stamp, payload []byte) error {
		if len(all) == 0 || all[len(all)-1].number != number {
			all = append(all, pass{number: number, stamp: stamp})
		}
		all[len(all)-1].entries += string(payload)
		return nil
	})
	return all, err
}

func scan(file []byte) (Summary, error) { return Scan(bytes.NewReader(file), int64(len(file))) }

// example returns a segment of a few passes, and the offsets at which they end. One pass has
// several frames, and one is empty.
func example(t testing.TB) (file []byte, all passes, ends []int64) {
	d := newDisk()
	w, err := Create(d, header)
	require.NoError(t, err)
	ends = append(ends, w.Size())
	all.write(t, w, true, "one", "two")
	ends = append(ends, w.Size())
	all.write(t, w, true)
	ends = append(ends, w.Size())
	large := string(bytes.Repeat([]byte("0123456789abcdef"), frameBytes/16))
	require.NoError(t, w.Begin(stampOf(9)))
	for _, entry := range []string{"small", large, "after"} {
		require.NoError(t, w.Append([]byte(entry)))
	}
	require.NoError(t, w.End(true))
	all = append(all, pass{9, stampOf(9), "small" + large + "after"})
	ends = append(ends, w.Size())
	all.write(t, w, true, "last")
	ends = append(ends, w.Size())
	require.Equal(t, int64(len(d.content)), w.Size())
	return d.content, all, ends
}

// short is an example with small frames, so that a test can try each of its bytes.
func short(t testing.TB) (file []byte, all passes, ends []int64) {
	d := newDisk()
	w, err := Create(d, header)
	require.NoError(t, err)
	ends = append(ends, w.Size())
	for i, entries := range [][]string{{"one", "two"}, {}, {"first frame", "second frame", "third"}, {"last"}} {
		number := w.Next()
		require.NoError(t, w.Begin(stampOf(number)))
		whole := ""
		for _, entry := range entries {
			require.NoError(t, w.Append([]byte(entry)))
			whole += entry
			if i == 2 && entry != "third" {
				require.NoError(t, w.flush(false))
			}
		}
		require.NoError(t, w.End(true))
		all = append(all, pass{number, stampOf(number), whole})
		ends = append(ends, w.Size())
	}
	require.Equal(t, []int64{88, 174, 254, 442, 526}, ends)
	return d.content, all, ends
}
