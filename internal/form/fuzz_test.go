package form

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Check accepts each state that Read decodes, and Append encodes it to the same bytes.
func FuzzRead(f *testing.F) {
	for _, g := range golden {
		f.Add(bytesOf(f, g.form))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		var s State
		if s.Read(value, 0) != nil {
			return
		}
		require.NoError(t, s.Check())
		require.Equal(t, value, Append(nil, &s))
		require.LessOrEqual(t, len(s.Entries)+len(s.Leases), len(value))
		if s.Shift(1) {
			require.NoError(t, s.Check())
			require.True(t, s.Shift(-1))
			require.Equal(t, value, Append(nil, &s))
		}
	})
}

func FuzzTAT(f *testing.F) {
	f.Add([]byte("1700000000123456789"))
	f.Fuzz(func(t *testing.T, value []byte) {
		if tat, ok := ParseTAT(value); ok {
			require.Equal(t, value, AppendTAT(nil, tat))
		}
	})
}

func BenchmarkForms(b *testing.B) {
	for _, g := range golden {
		b.Run(string(g.state.Kind), func(b *testing.B) {
			b.ReportAllocs()
			var s State
			form := Append(nil, &g.state)
			for b.Loop() {
				if err := s.Read(form, 0); err != nil {
					b.Fatal(err)
				}
				form = Append(form[:0], &s)
			}
		})
	}
}
