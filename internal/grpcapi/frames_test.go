package grpcapi

import (
	"bytes"
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
			return frame{length: rapid.IntRange(0, 300).Draw(t, "length"), kind: rapid.Byte().Draw(t, "kind"),
				flags: rapid.Byte().Draw(t, "flags"), stream: rapid.Uint32Range(0, 1<<31-1).Draw(t, "stream")}
		}), 1, 20).Draw(t, "frames")
		for _, f := range want {
			require.NoError(t, framer.WriteRawFrame(http2.FrameType(f.kind), http2.Flags(f.flags), f.stream,
				make([]byte, f.length)))
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
