package grpcapi

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"pgregory.net/rapid"
)

// Frames are found in whatever parts their bytes come, after a preface too.
func TestFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text bytes.Buffer
		text.WriteString(http2.ClientPreface)
		framer := http2.NewFramer(&text, nil)
		want := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) frame {
			f := frame{length: rapid.IntRange(0, 300).Draw(t, "length"), kind: rapid.ByteRange(0, 10).Draw(t, "kind"),
				flags: rapid.Byte().Draw(t, "flags"), stream: rapid.Uint32Range(0, 1<<31-1).Draw(t, "stream")}
			if f.kind == goAwayFrame && f.length >= lastStream {
				f.last = rapid.Uint32Range(0, 1<<31-1).Draw(t, "last")
			}
			return f
		}), 1, 20).Draw(t, "frames")
		for _, f := range want {
			require.NoError(t, framer.WriteRawFrame(http2.FrameType(f.kind), http2.Flags(f.flags), f.stream,
				f.payload()))
		}
		finder, got := frames{skipped: preface}, []frame(nil)
		for all := text.Bytes(); len(all) > 0; {
			n := rapid.IntRange(1, len(all)).Draw(t, "part")
			for f, rest, found := finder.next(all[:n]); found; f, rest, found = finder.next(rest) {
				got = append(got, f)
			}
			all = all[n:]
		}
		require.Equal(t, want, got)
	})
}

// payload returns what follows the header of a frame.
func (f frame) payload() []byte {
	text := make([]byte, max(f.length, lastStream))
	binary.BigEndian.PutUint32(text, f.last)
	return text[:f.length]
}

// The fields of a request are the last bytes that are used of what has arrived, in whatever parts it comes. So when
// grpc-go has seen fields, the newest request is the one that they begin.
func TestFieldsAreUsedAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text bytes.Buffer
		framer := http2.NewFramer(&text, nil)
		ends := map[int]uint32{} // the streams of requests, by where their fields end
		for i := range rapid.Uint32Range(1, 20).Draw(t, "requests") {
			stream, fields := 2*i+1, rapid.SliceOfN(rapid.IntRange(0, 50), 1, 4).Draw(t, "fields")
			require.NoError(t, framer.WriteRawFrame(headersFrame, endOf(fields[:1], fields), stream, make([]byte, fields[0])))
			for j := range fields[1:] {
				require.NoError(t, framer.WriteRawFrame(continuesFrame, endOf(fields[:j+2], fields), stream,
					make([]byte, fields[j+1])))
			}
			ends[text.Len()] = stream
			require.NoError(t, framer.WriteData(stream, true, make([]byte, rapid.IntRange(0, 50).Draw(t, "data"))))
		}
		h, all, at := &holding{requests: map[uint32]*request{}, last: math.MaxInt32}, text.Bytes(), 0
		for at < len(all) {
			used, _ := h.receive(nil, all[at:rapid.IntRange(at+1, len(all)).Draw(t, "part")])
			for end, stream := range ends {
				if at < end && end <= at+used {
					require.Equal(t, at+used, end)
					require.Same(t, h.requests[stream], h.newest)
					delete(ends, end)
				}
			}
			require.Positive(t, used)
			at += used
		}
		require.Empty(t, ends)
	})
}

// endOf returns the flags of a frame with the last of some fields.
func endOf(fields, all []int) http2.Flags {
	if len(fields) == len(all) {
		return endsFields
	}
	return 0
}

// A GOAWAY ends the requests that it leaves out, and no more of them count.
func TestGoAwayEndsRequests(t *testing.T) {
	h := &holding{requests: map[uint32]*request{}, last: math.MaxInt32}
	begin := func(stream uint32) (more int64) {
		var text bytes.Buffer
		require.NoError(t, http2.NewFramer(&text, nil).WriteRawFrame(headersFrame, endsFields, stream, make([]byte, 9)))
		_, more = h.receive(nil, text.Bytes())
		return more
	}
	goAway := func(last uint32) int64 {
		var text bytes.Buffer
		require.NoError(t, http2.NewFramer(&text, nil).WriteGoAway(last, http2.ErrCodeNo, nil))
		return h.send(text.Bytes())
	}
	one := begin(5)
	require.Equal(t, one, begin(7))
	require.Zero(t, goAway(math.MaxInt32))
	require.Equal(t, one, begin(9))
	require.Equal(t, -2*one, goAway(5))
	require.Zero(t, begin(11))
	require.Len(t, h.requests, 1)
}
