package rdb

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/calendar"
	"cellserver/internal/form"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/persist"
	"cellserver/internal/quota"
	"cellserver/internal/rdb"
	"cellserver/internal/standing"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
	"cellserver/internal/window"
)

// filled returns a store with limiters of each kind, and values, in two databases. Its clock is
// some hours behind Unix time.
func filled(t *testing.T) *memory.Store {
	clock := store.NewStillClock(time.Now().Add(-5 * time.Hour).UnixNano())
	clock.SetOffset(5 * time.Hour)
	data := memory.New(memory.Options{Clock: clock})
	t.Cleanup(func() { data.Close() })
	v := data.View()
	v.Begin()
	for _, database := range []int{0, 7} {
		v.Select(database)
		for i := range 500 {
			fillLimiters(t, v, i)
			number := store.Value{Integer: int64(i) << (i % 50), IsInteger: true}
			require.NoError(t, v.Write(ctx, fmt.Append(nil, "number ", i), number, v.Now()+int64(time.Hour)+int64(i)))
			text := store.Value{Bytes: fmt.Append(nil, "text ", i)}
			require.NoError(t, v.Write(ctx, fmt.Append(nil, "text ", i), text, store.Never))
		}
	}
	return data
}

func fillLimiters(t *testing.T, v store.View, i int) {
	throttle, err := gcra.NewLimit(int64(i), 10, 3600)
	require.NoError(t, err)
	size, err := window.NewLimit(100, quota.Seconds(3600+int64(i)))
	require.NoError(t, err)
	log, err := window.NewLogLimit(100, 3600, 100)
	require.NoError(t, err)
	for name, rule := range map[string]limit.Rule{
		"throttle": {Kind: limit.Throttle, Throttle: throttle},
		"fixed":    {Kind: limit.Fixed, Window: size},
		"sliding":  {Kind: limit.Sliding, Window: size},
		"log":      {Kind: limit.SlidingLog, Log: log},
		"quota":    {Kind: limit.Quota, Window: size, Cycle: calendar.Every(31 * 365 * 24 * time.Hour)},
	} {
		_, err := v.Take(ctx, fmt.Append(nil, name, " ", i), &rule, 1, quota.Take)
		require.NoError(t, err)
	}
	r, err := lease.NewRequest(10, 3600, fmt.Append(nil, "holder", i), 1)
	require.NoError(t, err)
	_, err = v.Acquire(ctx, fmt.Append(nil, "lease ", i), r, 10)
	require.NoError(t, err)
	ban := func(now int64, s standing.State) standing.State { return s.BanFor(now, int64(time.Hour), "a reason") }
	require.NoError(t, v.EditStanding(ctx, fmt.Append(nil, "standing ", i), ban))
}

// expected returns the keys that Redis should have in a database.
func expected(t *testing.T, data *memory.Store, database int) map[string]held {
	v, offset := data.View(), data.Clock().Offset()
	v.Begin()
	v.Select(database)
	entries := map[string]store.Entry{}
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var err error
		cursor, err = v.Scan(ctx, cursor, 100, func(key []byte, e store.Entry) { entries[string(key)] = e })
		require.NoError(t, err)
	}
	all := map[string]held{}
	for key, e := range entries {
		want := held{expires: rdb.Never}
		if e.Expires != store.Never {
			want.expires = form.Milliseconds(e.Expires + offset)
		}
		value, _, err := v.Read(ctx, []byte(key), nil)
		require.NoError(t, err)
		switch want.value = string(value); {
		case e.Kind == limit.Throttle:
			want.value = strconv.FormatInt(e.Expires+offset, 10)
		case !e.Kind.IsValue():
			value, _, err = v.ReadForm(ctx, []byte(key), nil)
			require.NoError(t, err)
			var state form.State
			require.NoError(t, state.Read(value, 0))
			require.True(t, state.Shift(offset))
			want.value, want.expires = string(form.Append(nil, &state)), form.Milliseconds(state.Expires())
		}
		all[key] = want
	}
	return all
}

// redis-server loads every key of the file that SAVE writes, with its value and expiry.
func TestRedisLoadsWhatWeSave(t *testing.T) {
	data := filled(t)
	dir := t.TempDir()
	path := filepath.Join(dir, fileName)
	file, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, persist.WriteRDB(ctx, file, data))
	require.NoError(t, file.Close())
	report, err := exec.Command("redis-check-rdb", path).CombinedOutput()
	require.NoError(t, err, "%s", report)

	database := start(t, dir)
	for _, number := range []int{0, 7} {
		client, keys := database(number), expected(t, data, number)
		require.Len(t, keys, 9*500)
		require.Equal(t, int64(len(keys)), client.DBSize(ctx).Val())
		for key, want := range keys {
			require.Equal(t, want, ask(t, client, key), "%d %q", number, key)
		}
	}
}
