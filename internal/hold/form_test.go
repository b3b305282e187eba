package hold_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/hold"
)

// A form is read as it was written. A part of a form, or a form of another version, is refused.
func TestForms(t *testing.T) {
	var b hold.Book
	c := hold.Counter{At: 5, Span: 7}
	b.Add(hold.Open{ID: []byte("a"), Counter: c, Quantity: 3, Unit: 1, Ends: 100, Reply: []byte("r")}, 2, 9, 3, 0)
	b.Add(hold.Open{ID: []byte("b"), Counter: c, Quantity: 4, Unit: 1, Ends: 90, Words: 1}, 2, 9, 7, 0)
	form := b.Append(nil)
	var read hold.Book
	require.NoError(t, read.Read(form))
	require.Equal(t, form, read.Append(nil))
	require.Equal(t, []hold.Open{
		{ID: []byte("a"), Number: 1, Counter: c, Quantity: 3, Unit: 1, Ends: 100, Reply: []byte("r")},
		{ID: []byte("b"), Number: 2, Counter: c, Quantity: 4, Unit: 1, Ends: 90, Words: 1},
	}, slices.Collect(read.All()))
	for i := range form {
		require.ErrorIs(t, new(hold.Book).Read(form[:i]), hold.ErrForm, "%d bytes", i)
	}
	require.ErrorIs(t, new(hold.Book).Read(append([]byte{3}, form[1:]...)), hold.ErrForm)
	require.NoError(t, read.Read(new(hold.Book).Append(nil)))
	require.Zero(t, read.Len())

	key, content, err := hold.ReadField(hold.AppendField(nil, []byte("key"), form))
	require.NoError(t, err)
	require.Equal(t, "key", string(key))
	require.Equal(t, form, content)
	for _, damaged := range []string{"", "\x04key", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		_, _, err := hold.ReadField([]byte(damaged))
		require.ErrorIs(t, err, hold.ErrForm, "%q", damaged)
	}
}

// A form of the first version, which journals and stores may have, is read.
func TestFirstForm(t *testing.T) {
	form := []byte{1, 2, 0} // version, kind, TAT
	form = append(form, 1, 1, 10, 14, 6)
	form = append(form, 2)
	form = append(form, 1, 10, 14, 6, 2, 200, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 'a', 1, 'r')
	form = append(form, 2, 10, 14, 8, 2, 180, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 'b', 0)
	var b hold.Book
	require.NoError(t, b.Read(form))
	c := hold.Counter{At: 5, Span: 7}
	require.Equal(t, []hold.Open{
		{ID: []byte("a"), Number: 1, Counter: c, Quantity: 3, Unit: 1, Ends: 100, Reply: []byte("r")},
		{ID: []byte("b"), Number: 2, Counter: c, Quantity: 4, Unit: 1, Ends: 90, Words: 1},
	}, slices.Collect(b.All()))
	b.Edit(2, 9, func(p *hold.Path) {
		require.Equal(t, hold.Path{Number: 2, Marks: []hold.Mark{{From: 1, Counter: c, Low: 3, Holds: 2}}}, *p)
	})
	for i := range form {
		require.ErrorIs(t, new(hold.Book).Read(form[:i]), hold.ErrForm, "%d bytes", i)
	}
}

// Whatever bytes are read as a book, it can be used.
func FuzzBook(f *testing.F) {
	var b hold.Book
	b.Add(hold.Open{ID: []byte("a"), Quantity: 3, Unit: 5, Ends: 100, Reply: []byte("r")}, 1, 9, 15, 24)
	b.Add(hold.Open{ID: []byte("b"), Ends: 90, Words: 1}, 1, 9, 7, 0)
	f.Add(b.Append(nil))
	f.Fuzz(func(t *testing.T, form []byte) {
		var b hold.Book
		if b.Read(form) != nil {
			return
		}
		require.NoError(t, new(hold.Book).Read(b.Append(nil)))
		n := b.Len()
		b.Add(hold.Open{ID: []byte("new"), Quantity: 1, Unit: 1, Ends: 50}, b.Kind(), 1, 1, 0)
		require.Equal(t, n+1, b.Len())
		b.Edit(b.Kind(), 2, func(p *hold.Path) {
			for o := range b.All() {
				given := p.Correct(o.Number, o.Counter, 1)
				require.True(t, given == 0 || given == 1)
			}
		})
		b.Shift(5, true)
		b.Lapse(70)
		for b.Len() > 0 {
			b.Close(b.First().ID)
		}
	})
}

// The instants of a book move to another clock and back. Zero stands for no instant.
func TestShift(t *testing.T) {
	c := hold.Counter{At: 30, Span: 4}
	for _, unix := range []bool{false, true} {
		var b hold.Book
		b.Add(hold.Open{ID: []byte("a"), Counter: c, Unit: 1, Ends: 40}, 1, 9, 0, 20)
		b.Add(hold.Open{ID: []byte("b"), Ends: 50}, 0, 0, 0, 0)
		before := b.Append(nil)
		require.True(t, b.Shift(1000, unix))
		counter := hold.Counter{At: 1030, Span: 4}
		if unix {
			counter.At = 30
		}
		require.Equal(t, []hold.Open{
			{ID: []byte("a"), Number: 1, Counter: counter, Unit: 1, Ends: 1040}, {ID: []byte("b"), Ends: 1050},
		}, slices.Collect(b.All()))
		b.Edit(1, 0, func(p *hold.Path) {
			require.Equal(t, hold.Path{Last: 1020, Number: 1, Marks: []hold.Mark{{From: 1, Counter: counter, Holds: 1}}}, *p)
		})
		require.True(t, b.Shift(-1000, unix))
		require.Equal(t, before, b.Append(nil))
		require.False(t, b.Shift(math.MaxInt64, unix))
	}
}

// A book makes of its bytes what a list of holds would be.
func TestBook(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		var b hold.Book
		want := []hold.Open{}
		number := uint64(0)
		for n := range 60 {
			now := int64(n)
			switch c := random.IntN(4); {
			case c < 2:
				o := hold.Open{ID: fmt.Append(nil, "id", n), Quantity: random.Int64N(1e9),
					Ends: now + random.Int64N(40) + 1, Reply: bytes.Repeat([]byte("r"), 1+random.IntN(40))}
				if random.IntN(3) > 0 {
					o.Unit, o.Counter = 1+random.Int64N(1e9), hold.Counter{At: 1 + now/20}
				}
				b.Add(o, 2, now, random.Int64N(1e18), 0)
				if o.Unit > 0 {
					number++
					o.Number = number
				}
				want = append(want, o)
			case c == 2 && len(want) > 0:
				i := random.IntN(len(want))
				o, found := b.Find(want[i].ID)
				require.True(t, found)
				require.Equal(t, want[i], o)
				b.Close(o.ID)
				want = slices.Delete(want, i, i+1)
			default:
				var lapsed []hold.Open
				for _, o := range want {
					if o.Ends <= now {
						lapsed = append(lapsed, o)
					}
				}
				require.Equal(t, lapsed, b.Lapse(now))
				want = slices.DeleteFunc(want, func(o hold.Open) bool { return o.Ends <= now })
			}
			require.Equal(t, len(want), b.Len())
			require.Equal(t, want, append([]hold.Open{}, slices.Collect(b.All())...))
			require.NoError(t, new(hold.Book).Read(b.Append(nil)))
			if len(want) > 0 {
				first := slices.MinFunc(want, func(a, b hold.Open) int { return cmp.Compare(a.Ends, b.Ends) })
				require.Equal(t, first, b.First())
			}
			_, found := b.Find([]byte("other"))
			require.False(t, found)
		}
	}
}
