package entry

import (
	"encoding/hex"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/form"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/window"
)

var fixed = form.State{Kind: limit.Fixed, Plain: limit.OfFixed(window.Fixed{Start: 5, Used: 2, End: 9})}

// chunk is one entry of each kind.
func chunk() []byte {
	dst := AppendGone(nil, 1, []byte("gone"))
	dst = AppendThrottle(dst, 300, []byte("tat"), 7)
	dst = AppendInteger(dst, 1, []byte("n"), math.MaxInt64, -2)
	dst = AppendInteger(dst, 1, []byte("e"), 9, 300)
	dst = append(dst, olderInteger...)
	dst = AppendBytes(dst, 1, nil, 8, []byte("value"))
	dst = AppendSize(dst, 300, 1000)
	dst = AppendLimiter(dst, 1, []byte("f"), &fixed)
	dst = AppendLogDelta(dst, 1, []byte("l"), &logChange)
	dst = AppendLeaseDelta(dst, 1, []byte("h"), &holdersChange)
	return AppendDatabases(dst, []uint64{300, 0, 1})
}

// olderInteger is an integer as it was written before the compact encodings.
const olderInteger = "i\x01\x01o" + "\x00\x00\x00\x00\x00\x00\x00\x08" + "\xff\xff\xff\xff\xff\xff\xff\xfd"

var (
	logChange = LogChanges{
		From: 1, To: 2, Dropped: 3, Kept: 4, End: 5, Until: 6,
		Added: []window.Entry{{At: 7, Total: 2}, {At: 8, Total: 5}},
	}
	holdersChange = LeaseChanges{
		From: 1, To: 2, Leases: []lease.Lease{{Holder: "gone"}, {Holder: "b", Quantity: 200, End: 9}},
	}
)

func TestEntriesAreDecoded(t *testing.T) {
	r := NewReader(chunk())
	next := func() Entry {
		require.True(t, r.Next(), r.Err())
		return r.Entry
	}
	require.Equal(t, Entry{Kind: Gone, Generation: 1, Key: []byte("gone")}, next())
	require.Equal(t, Entry{Kind: Throttle, Generation: 300, Key: []byte("tat"), Expires: 7}, next())
	require.Equal(t, Entry{Kind: Integer, Generation: 1, Key: []byte("n"), Expires: math.MaxInt64, Integer: -2}, next())
	require.Equal(t, Entry{Kind: Integer, Generation: 1, Key: []byte("e"), Expires: 9, Integer: 300}, next())
	require.Equal(t, Entry{Kind: Integer, Generation: 1, Key: []byte("o"), Expires: 8, Integer: -3}, next())
	require.Equal(t, Entry{Kind: Bytes, Generation: 1, Key: []byte{}, Expires: 8, Bytes: []byte("value")}, next())
	require.Equal(t, Entry{Kind: Size, Generation: 300, Keys: 1000}, next())
	require.Equal(t, Entry{Kind: Limiter, Generation: 1, Key: []byte("f"), Bytes: form.Append(nil, &fixed)}, next())
	l := next()
	require.Equal(t, LogDelta, l.Kind)
	gotLog, err := ReadLogDelta(l.Bytes)
	require.NoError(t, err)
	require.Equal(t, logChange, gotLog)
	h := next()
	require.Equal(t, LeaseDelta, h.Kind)
	gotHolders, err := ReadLeaseDelta(h.Bytes)
	require.NoError(t, err)
	require.Equal(t, holdersChange, gotHolders)
	require.Equal(t, Entry{Kind: Databases, Generations: []uint64{300, 0, 1}}, next())
	require.False(t, r.Next())
	require.NoError(t, r.Err())
}

// The encoding must never change: folders of earlier versions must be loaded.
func TestEntriesKeepTheirEncoding(t *testing.T) {
	const want = "670104676f6e65" +
		"74ac0203746174" + "0000000000000007" +
		"6e01016e" + "03" +
		"65010165" + "0000000000000009" + "d804" +
		"6901016f" + "0000000000000008" + "fffffffffffffffd" +
		"620100" + "0000000000000008" + "00000005" + "76616c7565" +
		"73ac02e807" +
		"66010166" + "0000000f" + "00636c3166" + "0000000000000005" + "0204" +
		"6c01016c" + "00000035" + "0000000000000001" + "0000000000000002" + "0304" + "0000000000000005" +
		"0000000000000006" + "02" + "02" + "0000000000000007" + "03" + "0000000000000008" +
		"68010168" + "0000002b" + "0000000000000001" + "0000000000000002" + "02" + "00" + "0000000000000000" + "04" +
		"676f6e65" + "c801" + "0000000000000009" + "01" + "62" +
		"6403ac020001"
	require.Equal(t, want, hex.EncodeToString(chunk()))
}

func TestACutChunkIsAnError(t *testing.T) {
	whole := chunk()
	boundaries := map[int]bool{0: true}
	for r := NewReader(whole); r.Next(); {
		boundaries[r.at] = true
	}
	for length := range whole {
		r := NewReader(whole[:length])
		for r.Next() {
		}
		require.Equal(t, boundaries[length], r.Err() == nil, "%d bytes: %v", length, r.Err())
	}
}

func TestCutChangesAreAnError(t *testing.T) {
	r := NewReader(chunk())
	for r.Next() {
		for length := range r.Bytes {
			switch r.Kind {
			case LogDelta:
				_, err := ReadLogDelta(r.Bytes[:length])
				require.Error(t, err)
			case LeaseDelta:
				_, err := ReadLeaseDelta(r.Bytes[:length])
				require.Error(t, err)
			}
		}
	}
	_, err := ReadLogDelta(append(AppendLogDelta(nil, 1, nil, &logChange)[7:], 0))
	require.Error(t, err, "more follows")
}

func FuzzEntries(f *testing.F) {
	f.Add(chunk())
	f.Fuzz(func(t *testing.T, p []byte) {
		r := NewReader(p)
		for r.Next() {
			var again []byte
			switch r.Kind {
			case Gone:
				again = AppendGone(nil, r.Generation, r.Key)
			case Throttle:
				again = AppendThrottle(nil, r.Generation, r.Key, r.Expires)
			case Integer:
				again = AppendInteger(nil, r.Generation, r.Key, r.Expires, r.Integer)
			case Bytes:
				again = AppendBytes(nil, r.Generation, r.Key, r.Expires, r.Bytes)
			case LogDelta:
				_, _ = ReadLogDelta(r.Bytes)
				continue
			case LeaseDelta:
				_, _ = ReadLeaseDelta(r.Bytes)
				continue
			case Size:
				again = AppendSize(nil, r.Generation, int(r.Keys))
			case Databases:
				again = AppendDatabases(nil, r.Generations)
			default:
				continue
			}
			kind, key := r.Kind, string(r.Key)
			s := NewReader(again)
			require.True(t, s.Next(), s.Err())
			require.Equal(t, kind, s.Kind)
			require.Equal(t, key, string(s.Key))
		}
	})
}
