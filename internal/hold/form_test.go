package hold_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/hold"
)

// A form is read as it was written. A part of a form, or a form of another version, is refused.
func TestForms(t *testing.T) {
	b := hold.Book{Kind: 2}
	c := hold.Counter{At: 5, Span: 7}
	b.Add(hold.Open{ID: "a", Counter: c, Quantity: 3, Unit: 1, Ends: 100, Reply: "r"}, 2, 9, 3, 0)
	b.Add(hold.Open{ID: "b", Counter: c, Quantity: 4, Unit: 1, Ends: 90, Words: 1}, 2, 9, 7, 0)
	form := b.Append(nil)
	var read hold.Book
	require.NoError(t, read.Read(form))
	require.Equal(t, b, read)
	for i := range form {
		require.ErrorIs(t, new(hold.Book).Read(form[:i]), hold.ErrForm, "%d bytes", i)
	}
	require.ErrorIs(t, new(hold.Book).Read(append([]byte{2}, form[1:]...)), hold.ErrForm)

	key, content, err := hold.ReadField(hold.AppendField(nil, []byte("key"), form))
	require.NoError(t, err)
	require.Equal(t, "key", string(key))
	require.Equal(t, form, content)
	for _, damaged := range []string{"", "\x04key", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		_, _, err := hold.ReadField([]byte(damaged))
		require.ErrorIs(t, err, hold.ErrForm, "%q", damaged)
	}
}

// The instants of a book move to another clock and back. Zero stands for no instant.
func TestShift(t *testing.T) {
	for _, unix := range []bool{false, true} {
		b := hold.Book{Path: hold.Path{Last: 20, Marks: []hold.Mark{{From: 1, Counter: hold.Counter{At: 30, Span: 4}}}},
			Open: []hold.Open{{Number: 1, Counter: hold.Counter{At: 30, Span: 4}, Ends: 40}, {Number: 2, Ends: 50}}}
		before := b.Append(nil)
		require.True(t, b.Shift(1000, unix))
		counter := hold.Counter{At: 1030, Span: 4}
		if unix {
			counter.At = 30
		}
		require.Equal(t, hold.Book{Path: hold.Path{Last: 1020, Marks: []hold.Mark{{From: 1, Counter: counter}}},
			Open: []hold.Open{{Number: 1, Counter: counter, Ends: 1040}, {Number: 2, Ends: 1050}}}, b)
		require.True(t, b.Shift(-1000, unix))
		require.Equal(t, before, b.Append(nil))
		require.False(t, b.Shift(math.MaxInt64, unix))
	}
}
