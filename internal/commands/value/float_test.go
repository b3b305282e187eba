package value

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
)

// A float whose first 17 decimal places are zeros is not formatted: the smallest have 16,000 digits.
func TestTinyFloatsAreNotFormatted(t *testing.T) {
	for _, word := range []string{"1e-4900", "0x1p-16000", "-0x1p-16445", "1e-19"} {
		f, ok := parseFloat([]byte(word))
		require.True(t, ok, word)
		require.Equal(t, "0", string(floatText(f)), word)
		require.Less(t, testing.AllocsPerRun(10, func() { floatText(f) }), 5., word)
	}
}

// While a long float is computed, its key is not locked, and changes by other clients are not lost.
func TestLongFloatsAreComputedWithoutTheLock(t *testing.T) {
	for _, long := range []struct {
		name, held string
		numbers    bool
	}{{"a long increment", "1", true}, {"a long value", strings.Repeat("1", maxShortFloat+1), false}} {
		own, other := twoCalls()
		key, ctx := []byte("k"), context.Background()
		set := func(text string) {
			require.NoError(t, other.Write(ctx, key, store.Value{Bytes: []byte(text)}, store.Never), long.name)
		}
		set(long.held)
		seen := []string{}
		step := floatStep{long: long.numbers, put: put, count: func(_ store.Entry, was []byte) ([]byte, error) {
			seen = append(seen, string(was))
			if len(seen) <= 2 {
				set(long.held + "." + strings.Repeat("5", len(seen))) // this would deadlock if the key were locked
			}
			return append(was, '7'), nil
		}}
		require.NoError(t, editFloat(own, key, step))
		require.Equal(t, []string{long.held, long.held + ".5", long.held + ".55"}, seen, long.name)
		value, _, err := other.Read(ctx, key, nil)
		require.NoError(t, err)
		require.Equal(t, long.held+".557", string(value), long.name)
	}
}

// If other clients change the key several times, the sum is computed with the key locked.
func TestLongFloatsAreComputedInTheEnd(t *testing.T) {
	own, other := twoCalls()
	key, ctx := []byte("k"), context.Background()
	tries := 0
	step := floatStep{long: true, put: put, count: func(_ store.Entry, was []byte) ([]byte, error) {
		if tries++; tries <= 4 {
			require.NoError(t, other.Write(ctx, key, store.Value{Bytes: []byte(strings.Repeat("x", tries))}, store.Never))
		}
		return append(was, '7'), nil
	}}
	require.NoError(t, editFloat(own, key, step))
	require.Equal(t, 5, tries)
	value, _, err := other.Read(ctx, key, nil)
	require.NoError(t, err)
	require.Equal(t, "xxxx7", string(value))
}

// twoCalls returns a call of one client, and the store as another client uses it.
func twoCalls() (own *command.Call, other store.View) {
	data := memory.New(memory.Options{Clock: store.NewClock()})
	return &command.Call{Context: context.Background(), View: data.View()}, data.View()
}
