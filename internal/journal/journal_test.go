package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The format of a segment must not change, unless the digit in its magic changes too.
func TestGoldenSegment(t *testing.T) {
	d := newDisk()
	w, err := Create(d, header)
	require.NoError(t, err)
	require.NoError(t, w.Begin(Stamp{Boot: [16]byte([]byte("0123456789abcdef")), Uptime: 1, Wall: 2, Clock: 3}))
	require.NoError(t, w.Append([]byte("entry")))
	require.NoError(t, w.End(true))
	require.Equal(t, "636c6a726e6c320a"+"00000058"+
		"312e322e33000000000000000000000000000000"+"fedcba9876543210"+
		"0123456789abcdef"+"0000000000000003"+"0000000000000007"+"0000000000000006"+
		"1122334455667788"+"99aabbcc"+"eec179a5"+goldenFrame, hex.EncodeToString(d.content))
	require.Equal(t, Link{header.Mark, crc32.Checksum(d.content[88:128], castagnoli)}, w.Link())
}

const goldenFrame = "0123456789abcdef" + "0000000000000007" + "0000000000000006" + "80000000" + "0000002d" +
	"177be552" + "389ef47a" +
	"30313233343536373839616263646566" + "0000000000000001" + "0000000000000002" + "0000000000000003" + "656e747279"

// Segments of version 1 are read.
func TestOldSegment(t *testing.T) {
	file, err := hex.DecodeString("636c6a726e6c310a" +
		"0123456789abcdef" + "0000000000000003" + "0000000000000007" + "0000000000000006" + "c821f08e" + goldenFrame)
	require.NoError(t, err)
	s, err := scan(file)
	require.NoError(t, err)
	require.Equal(t, Header{Version: 1, Mark: header.Mark, Number: 3, First: 7, Synced: 6}, s.Header)
	require.Equal(t, uint64(7), s.Last)
	require.Equal(t, "entry", read(t, file, s)[0].entries)
	require.NoError(t, s.CheckNext(Header{Number: 4, First: 8, Previous: s.Link()}), "a new segment follows")
	for cut := range file {
		s, err := scan(file[:cut])
		require.NoError(t, err)
		require.Equal(t, cut < 44, s.End == 0)
	}
}

// A segment of a later version is not damaged, and says which program wrote it. A wrong digit is damage.
func TestNewerVersion(t *testing.T) {
	resum := func(p []byte) []byte {
		return binary.BigEndian.AppendUint32(bytes.Clone(p[:len(p)-4]), sum(p[:len(p)-4]))
	}
	newer := header.bytes()
	newer[6] = '3'
	longer := slices.Concat(newer[:8], []byte{0, 0, 0, 100}, newer[12:], make([]byte, 12))
	for _, c := range []struct {
		header  []byte
		program string
	}{
		{resum(newer), "1.2.3"}, {resum(longer), "1.2.3"}, {longer, ""},
		{resum(slices.Concat([]byte("cljrnl9\n"), make([]byte, 36))), ""},
	} {
		var newer *VersionError
		_, err := scan(append(c.header, make([]byte, 1000)...))
		require.ErrorAs(t, err, &newer)
		require.Equal(t, c.program, newer.Program)
		_, _, _, err = ReadHeader(bytes.NewReader(c.header), int64(len(c.header)))
		require.ErrorAs(t, err, &newer)
	}
	for _, digit := range "013456789" {
		damaged := header.bytes()
		damaged[6] = byte(digit)
		_, err := scan(append(damaged, 0))
		require.Equal(t, errHeaderDamaged, err)
	}
}

func TestReadsWhatItWrites(t *testing.T) {
	for _, make := range []func(testing.TB) ([]byte, passes, []int64){example, short} {
		file, all, ends := make(t)
		s, err := scan(file)
		require.NoError(t, err)
		require.Equal(t, header, s.Header)
		require.Equal(t, []any{uint64(10), ends[4], int64(0), stampOf(10)}, []any{s.Last, s.End, s.Torn, s.Stamp})
		requireHolds(t, all, file, s)
	}
}

// An *os.File is a File.
func TestFileOfTheSystem(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "segment"))
	require.NoError(t, err)
	defer file.Close()
	w, err := Create(file, header)
	require.NoError(t, err)
	var all passes
	for range 3 {
		all.write(t, w, true, "entry")
	}
	require.NoError(t, w.Begin(stampOf(w.Next())))
	require.NoError(t, w.Append([]byte("half")))
	require.NoError(t, w.flush(false))
	s, err := Scan(file, w.at)
	require.NoError(t, err)
	require.Equal(t, w.at-w.Size(), s.Torn)
	content, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	requireHolds(t, all, content, s)
}

// A segment that is truncated at any byte has the passes that are complete up to there.
func TestEveryCut(t *testing.T) {
	file, all, ends := short(t)
	for cut := range file {
		s, err := scan(file[:cut])
		require.NoError(t, err)
		require.Equal(t, int64(cut), s.End+s.Torn)
		if cut < segmentHeaderBytes {
			require.Equal(t, Summary{Torn: int64(cut)}, s)
			continue
		}
		whole := 0
		for ends[whole+1] <= int64(cut) {
			whole++
		}
		require.Equal(t, ends[whole], s.End)
		require.Equal(t, header.First+uint64(whole)-1, s.Last)
		requireHolds(t, all[:whole], file[:cut], s)
	}
}

// A byte that is changed before the last pass is a fault of its frame, because the next pass
// records that its pass was on the disk. In the last pass, it is a torn tail.
func TestEveryChangedByte(t *testing.T) {
	file, all, ends := short(t)
	for i := range file {
		broken := 0 // the pass
		for ends[broken] <= int64(i) {
			broken++
		}
		for change := 1; change < 256; change++ {
			file[i] ^= byte(change)
			s, err := scan(file)
			fault, _ := err.(*Fault)
			switch {
			case broken == 0:
				require.True(t, fault != nil && fault.Pass == 0 && fault.Offset == 0 && s == Summary{})
			case broken == len(all):
				require.True(t, err == nil && s.End == ends[broken-1])
			default:
				require.True(t, fault != nil && fault.Pass == all[broken-1].number && s.End == ends[broken-1])
				require.True(t, s.End <= fault.Offset && fault.Offset <= int64(i))
			}
			if broken > 0 {
				require.True(t, s.End+s.Torn == int64(len(file)))
				requireHolds(t, all[:broken-1], file, s)
			}
			file[i] ^= byte(change)
		}
	}
}

// After Close, a byte that is changed in the last pass is a fault too.
func TestClosedSegmentHidesNoFault(t *testing.T) {
	d := newDisk()
	w, err := Create(d, header)
	require.NoError(t, err)
	var all passes
	all.write(t, w, true, "only")
	end := w.Size()
	require.NoError(t, w.Begin(stampOf(8)))
	require.NoError(t, w.Close(stampOf(8)))
	for i := int64(segmentHeaderBytes); i < end; i++ {
		d.content[i]++
		_, err := scan(d.content)
		var fault *Fault
		require.ErrorAs(t, err, &fault)
		require.Equal(t, int64(segmentHeaderBytes), fault.Offset)
		require.EqualError(t, err, "at byte 88, in pass 7: "+fault.Reason+", and later passes follow")
		d.content[i]--
	}
	s, err := scan(d.content)
	require.NoError(t, err)
	require.Equal(t, uint64(8), s.Last)
}

// Valid frames in the wrong place are a fault, because a crash does not move frames.
func TestMovedFrames(t *testing.T) {
	file, _, ends := short(t)
	cut := func(from, to int) []byte { return file[ends[from]:ends[to]] }
	for name, moved := range map[string][]byte{
		"swapped":   bytes.Join([][]byte{file[:ends[0]], cut(1, 2), cut(0, 1), cut(2, 4)}, nil),
		"missing":   bytes.Join([][]byte{file[:ends[1]], cut(2, 4)}, nil),
		"twice":     bytes.Join([][]byte{file[:ends[1]], cut(0, 1), cut(1, 4)}, nil),
		"not first": bytes.Join([][]byte{file[:ends[0]], cut(1, 4)}, nil),
		"a part":    bytes.Join([][]byte{file[:345], file[397:]}, nil),
		"more":      bytes.Join([][]byte{file[:ends[2]], []byte("x"), cut(2, 4)}, nil),
		"zeros":     bytes.Join([][]byte{file[:ends[2]], make([]byte, 3<<20), cut(2, 4)}, nil),
	} {
		_, err := scan(moved)
		var fault *Fault
		require.ErrorAs(t, err, &fault, name)
	}
	_, all, _ := short(t)
	again := append(bytes.Clone(file), cut(3, 4)...) // nothing says that it was lost
	s, err := scan(again)
	require.NoError(t, err)
	require.Equal(t, ends[4]-ends[3], s.Torn)
	requireHolds(t, all, again, s)
}

// A later frame is found wherever it is, such as across two windows of the search.
func TestFindsLaterFrames(t *testing.T) {
	file, _, ends := short(t)
	for gap := searchBytes - frameHeaderBytes - 1; gap <= searchBytes+1; gap++ {
		_, err := scan(bytes.Join([][]byte{file[:ends[2]], make([]byte, gap), file[ends[3]:]}, nil))
		var fault *Fault
		require.ErrorAs(t, err, &fault, "%d", gap)
		require.Equal(t, ends[2], fault.Offset)
	}
}

// Frames of another segment are invalid.
func TestFramesOfAnotherSegment(t *testing.T) {
	file, _, ends := short(t)
	d := newDisk()
	other := header
	other.Mark++
	_, err := Create(d, other)
	require.NoError(t, err)
	s, err := scan(append(bytes.Clone(d.content), file[ends[0]:]...))
	require.NoError(t, err)
	require.Equal(t, Summary{Header: other, Last: 6, End: 88, Torn: ends[4] - ends[0]}, s)
}

// After a power failure at any time, a segment has complete passes, beginning with the first, and
// at least those that were synced. This holds whether or not each pass is synced.
func TestLossOfPower(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		d, w, all := life(rt, random, newDisk())
		for range 20 {
			require.NoError(rt, survives(d.lose(random), w, all))
		}
	})
}

// The test above finds a disk that reports syncs without making them, a reader that takes every bad
// frame before a good frame for a fault, and a reader that takes no bad frame for a fault.
func TestLossOfPowerIsFound(t *testing.T) {
	lies, faults := 0, 0
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		d, w, all := life(t, random, &disk{dirty: map[int]bool{}, room: 1 << 40, lies: true})
		left := d.lose(random)
		err := survives(left, w, all)
		var fault *Fault
		if errors.As(err, &fault) {
			faults++
		} else if err != nil {
			lies++
		}
	}
	require.Greater(t, lies, 10)
	require.Greater(t, faults, 10)
}

// life writes passes to a disk until the power fails, possibly in the middle of a pass.
func life(t require.TestingT, random *rand.Rand, d *disk) (*disk, *Writer, passes) {
	w, err := Create(d, header)
	require.NoError(t, err)
	d.synced = bytes.Clone(d.content) // a segment is begun with a disk that does not lie
	var all passes
	for range random.IntN(8) {
		begun := pass{number: w.Next(), stamp: stampOf(w.Next())}
		require.NoError(t, w.Begin(begun.stamp))
		for range random.IntN(5) {
			entry := bytes.Repeat([]byte("entry "), random.IntN(600))
			begun.entries += string(entry)
			require.NoError(t, w.Append(entry))
			if random.IntN(2) == 0 {
				require.NoError(t, w.flush(false))
			}
		}
		if random.IntN(8) == 0 {
			break
		}
		require.NoError(t, w.End(random.IntN(2) == 0))
		all = append(all, begun)
	}
	return d, w, all
}

// survives returns an error if the segment after a power failure is wrong.
func survives(left []byte, w *Writer, all passes) error {
	s, err := scan(left)
	switch {
	case err != nil:
		return err
	case s.Last < w.Synced() || s.Last-header.First+1 > uint64(len(all)):
		return fmt.Errorf("the last pass is %d, and %d was synced", s.Last, w.Synced())
	}
	found, err := contents(left, s)
	if err == nil && !slices.Equal(found, all[:s.Last-header.First+1]) {
		err = errors.New("the passes are not those that were written")
	}
	return err
}

// If the disk becomes full at any byte, only the pass in progress fails. When it has space again,
// the same segment can be continued.
func TestFullDisk(t *testing.T) {
	file, _, _ := short(t)
	for room := segmentHeaderBytes; room <= len(file)+100; room++ {
		d := newDisk()
		w, err := Create(d, header)
		require.NoError(t, err)
		d.room = room
		var all passes
		for i := range 8 {
			if i == 5 {
				d.room = 1 << 40
			}
			number, entries := w.Next(), bytes.Repeat([]byte{byte('a' + i)}, 40*(8-i))
			err := w.Begin(stampOf(number))
			require.NoError(t, err)
			require.NoError(t, w.Append(entries))
			if i%2 == 0 {
				if w.flush(false) != nil {
					require.Equal(t, errNoPass, w.Append(entries))
					continue
				}
			}
			if err = w.End(true); err == nil {
				all = append(all, pass{number, stampOf(number), string(entries)})
			} else {
				require.Equal(t, errFull, err)
			}
			s, err := scan(d.content)
			require.NoError(t, err)
			requireHolds(t, all, d.content, s)
		}
		require.GreaterOrEqual(t, len(all), 3)
	}
}

// After a failed sync, all calls of a writer fail, even if a later sync would succeed.
func TestFailedSync(t *testing.T) {
	d := newDisk()
	w, err := Create(d, header)
	require.NoError(t, err)
	var all passes
	all.write(t, w, true, "one")
	require.NoError(t, w.Begin(stampOf(8)))
	d.broken = true
	failed := w.End(true)
	require.ErrorIs(t, failed, errBroken)
	d.broken = false
	require.ErrorIs(t, failed, ErrSync)
	require.Equal(t, failed, w.Begin(stampOf(8)))
	require.Equal(t, failed, w.Close(stampOf(8)))
	require.Equal(t, uint64(7), w.Synced())
	_, err = Create(&disk{dirty: map[int]bool{}, room: 10}, header)
	require.Equal(t, errFull, err)
}

func TestTruncateFails(t *testing.T) {
	d := newDisk()
	w, err := Create(d, header)
	require.NoError(t, err)
	require.NoError(t, w.Begin(stampOf(7)))
	d.room = 104
	require.Equal(t, errFull, w.End(true))
	d.room, d.broken = 1<<40, true
	require.Equal(t, errBroken, w.Begin(stampOf(7)))
	d.broken = false
	var all passes
	all.write(t, w, true, "x")
	s, err := scan(d.content)
	require.NoError(t, err)
	requireHolds(t, all, d.content, s)
}

func TestWrongUse(t *testing.T) {
	d := newDisk()
	_, err := Create(d, Header{First: 0})
	require.Equal(t, errHeader, err)
	_, err = Create(d, Header{First: 5, Synced: 5})
	require.Equal(t, errHeader, err)
	w, err := Create(d, header)
	require.NoError(t, err)
	require.Equal(t, errNoPass, w.Append(nil))
	require.Equal(t, errNoPass, w.End(true))
	require.NoError(t, w.Begin(stampOf(7)))
	require.Equal(t, errOpen, w.Begin(stampOf(7)))
	w.Abandon()
	var all passes
	all.write(t, w, true, "again")
	require.NoError(t, w.Begin(stampOf(8)))
	w.maxEntry = 100
	require.Equal(t, errLarge, w.Append(make([]byte, 101)))
	require.Equal(t, errNoPass, w.End(true))
	s, err := scan(d.content)
	require.NoError(t, err)
	requireHolds(t, all, d.content, s)
}

// failingAt is a file that cannot be read from an offset on.
type failingAt struct {
	*bytes.Reader
	from int64
}

func (f failingAt) ReadAt(p []byte, offset int64) (int, error) {
	if offset+int64(len(p)) > f.from {
		return 0, errBroken
	}
	return f.Reader.ReadAt(p, offset)
}

// An error of reading a file is neither a torn tail nor a fault.
func TestReadErrors(t *testing.T) {
	file, _, _ := short(t)
	file[104]++
	for _, from := range []int64{0, 94, 144} {
		_, err := Scan(failingAt{bytes.NewReader(file), from}, int64(len(file)))
		require.Equal(t, errBroken, err)
	}
	_, err := Scan(bytes.NewReader(file), int64(len(file))+100)
	require.Equal(t, io.ErrUnexpectedEOF, err)
	file[104]--
	s, err := scan(file)
	require.NoError(t, err)
	require.Equal(t, errBroken, Replay(failingAt{bytes.NewReader(file), 94}, s, nil))
	stop := errors.New("stop")
	require.Equal(t, stop, Replay(bytes.NewReader(file), s, func(uint64, Stamp, []byte) error { return stop }))
	file[244]++
	err = Replay(bytes.NewReader(file), s, func(uint64, Stamp, []byte) error { return nil })
	var fault *Fault
	require.ErrorAs(t, err, &fault)
	require.NoError(t, iotest.TestReader(bytes.NewReader(file), file))
}

func TestReadHeader(t *testing.T) {
	file, all, ends := short(t)
	read := func(file []byte) (Header, Stamp, bool, error) {
		return ReadHeader(bytes.NewReader(file), int64(len(file)))
	}
	h, stamp, began, err := read(file)
	require.NoError(t, err)
	require.Equal(t, header, h)
	require.True(t, began)
	require.Equal(t, all[0].stamp, stamp)
	for _, size := range []int64{ends[0], ends[0] + frameHeaderBytes, ends[0] + frameHeaderBytes + stampBytes - 1} {
		h, _, began, err = read(file[:size])
		require.NoError(t, err)
		require.Equal(t, header, h)
		require.False(t, began)
	}
	file[ends[0]]++
	_, _, began, err = read(file)
	require.NoError(t, err)
	require.False(t, began)
	file[9]++
	var fault *Fault
	for _, damaged := range [][]byte{file, file[:20], nil} {
		_, _, _, err = read(damaged)
		require.ErrorAs(t, err, &fault)
	}
	_, _, _, err = ReadHeader(failingAt{bytes.NewReader(file), 0}, 100)
	require.Equal(t, errBroken, err)
}

// Replay without a Scan returns an error if the segment does not end as its summary says.
func TestReplayChecksTheEnd(t *testing.T) {
	file, all, ends := short(t)
	whole := Summary{Header: header, Last: all[3].number, End: int64(len(file))}
	found, err := contents(file, whole)
	require.NoError(t, err)
	require.Equal(t, all, found)
	var fault *Fault
	for _, end := range ends[:4] {
		whole.End = end
		_, err = contents(file, whole)
		require.ErrorAs(t, err, &fault)
		require.EqualError(t, err, fmt.Sprintf("at byte %d: the segment ends too early", end))
	}
	whole.End = ends[2] + frameHeaderBytes + stampBytes + int64(len("first frame")) // the first of three frames
	_, err = contents(file, whole)
	require.ErrorAs(t, err, &fault)
}

func TestJoins(t *testing.T) {
	s := Summary{Header: header, Last: 10, End: 100, sum: 5}
	this, other := Link{header.Mark, 5}, Link{header.Mark, 6}
	for next, want := range map[Header]string{
		{Number: 4, First: 11, Synced: 10}:                          "",
		{Number: 4, First: 11, Synced: 8}:                           "",
		{Number: 4, First: 11, Synced: 8, Previous: this}:           "",
		{Number: 4, First: 11, Synced: 8, Previous: other}:          ErrMixed.Error(),
		{Number: 4, First: 11, Synced: 8, Previous: Link{Mark: 1}}:  ErrMixed.Error(),
		{Number: 4, First: 13, Synced: 10, Previous: Link{Mark: 1}}: ErrMixed.Error(),
		{Number: 4, First: 13, Synced: 10, Previous: other}:         ErrGap.Error(),
		{Number: 5, First: 11, Synced: 10}:                          "at byte 100: segment 3 is followed by segment 5",
		{Number: 4, First: 10, Synced: 9}:                           "at byte 100: the segment ends with pass 10, and the next begins with pass 10",
		{Number: 4, First: 13, Synced: 12}:                          "at byte 100: the segment ends with pass 10, and pass 12 was on the disk",
		{Number: 4, First: 13, Synced: 11}:                          "at byte 100: the segment ends with pass 10, and pass 11 was on the disk",
		{Number: 4, First: 13, Synced: 10}:                          ErrGap.Error(),
	} {
		if err := s.CheckNext(next); want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, want)
		}
	}
}

// A segment that begins with a pass again, because its sync has failed, replaces that pass.
func TestPassIsRepeated(t *testing.T) {
	file, all, ends := short(t)
	s, err := scan(file)
	require.NoError(t, err)
	shorter, err := scan(file[:ends[3]])
	require.NoError(t, err)
	next := Header{Number: 4, First: 10, Synced: 9, Previous: shorter.Link()}
	cut := s.Before(next)
	require.NoError(t, cut.CheckNext(next))
	require.Equal(t, ends[3], cut.End)
	require.Equal(t, ends[4]-ends[3], cut.Torn)
	requireHolds(t, all[:3], file, cut)
	require.Equal(t, cut, cut.Before(next))
	next.First, next.Synced = 9, 8
	require.Equal(t, s, s.Before(next), "only the last pass can be repeated")
	next.First, next.Previous.Sum = 10, 1
	require.Equal(t, s, s.Before(next), "it is not the same segment")
}

// A frame that no Writer writes is invalid, even if its checksums are right.
func TestImpossibleFrames(t *testing.T) {
	for _, f := range []frame{
		{pass: 7, synced: 7, last: true, length: stampBytes},
		{pass: 7, synced: 5, last: true, length: stampBytes},
		{pass: 7, synced: 6, last: true, length: stampBytes - 1},
		{pass: 7, synced: 6, last: true, length: stampBytes, part: 1},
		{pass: 6, synced: 6, last: true, length: stampBytes},
	} {
		payload := make([]byte, f.length)
		f.sum = sum(payload)
		head := make([]byte, frameHeaderBytes)
		f.put(head, header.Mark)
		s, _ := scan(slices.Concat(header.bytes(), head, payload))
		require.Equal(t, int64(segmentHeaderBytes), s.End, "%v", f)
	}
}

// No file makes Scan panic, and Replay can read the passes that it finds.
func FuzzScan(f *testing.F) {
	file, _, ends := short(f)
	f.Add(file)
	f.Add(file[:ends[2]+20])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, file []byte) {
		s, err := scan(file)
		if err != nil {
			var fault *Fault
			var newer *VersionError
			require.True(t, errors.As(err, &fault) || errors.As(err, &newer))
		}
		require.LessOrEqual(t, s.End, int64(len(file)))
		if s.End > 0 {
			all := read(t, file, s)
			require.Len(t, all, int(s.Last-s.First+1))
		}
	})
}

// One operation is a pass of 100,000 entries of 60 bytes.
func BenchmarkPass(b *testing.B) {
	d := newDisk()
	w, err := Create(d, header)
	require.NoError(b, err)
	entry := make([]byte, 60)
	b.SetBytes(100_000 * 60)
	for b.Loop() {
		w.end = segmentHeaderBytes
		require.NoError(b, w.Begin(Stamp{}))
		for range 100_000 {
			if err := w.Append(entry); err != nil {
				b.Fatal(err)
			}
		}
		require.NoError(b, w.flush(true))
		w.open = false
	}
}

func BenchmarkScan(b *testing.B) {
	d := newDisk()
	w, err := Create(d, header)
	require.NoError(b, err)
	for range 10 {
		require.NoError(b, w.Begin(Stamp{}))
		for range 10_000 {
			require.NoError(b, w.Append(make([]byte, 60)))
		}
		require.NoError(b, w.End(false))
	}
	b.SetBytes(int64(len(d.content)))
	for b.Loop() {
		_, err := scan(d.content)
		require.NoError(b, err)
	}
}
