package remote_test

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/rdb"
	"cellserver/internal/store"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/remotetest"
	"cellserver/internal/window"
)

// viewOf returns a view of a store with the keys of a file of Redis, at the time at which the file was written.
func viewOf(t *testing.T, file string) store.View {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	clock := store.NewStillClock(0)
	table, own := remotetest.New(clock, 16), map[string]string{} // internal keys by their names without the slot
	r := rdb.NewReader(bytes.NewReader(text))
	for {
		rec, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		value := bytes.Clone(rec.Bytes)
		if rec.IsInteger {
			value = strconv.AppendInt(nil, rec.Integer, 10)
		}
		if _, name, internal := strings.Cut(string(rec.Key), "\x00"); internal {
			own[name] = string(rec.Key)
		}
		table.Put(rec.Database, string(rec.Key), value)
	}
	written, err := strconv.ParseInt(r.Field("ctime"), 10, 64)
	require.NoError(t, err)
	clock.Advance(time.Duration(written) * time.Second)
	return onTable(t, table, remote.Options{OwnKey: func(_, name string) string {
		return cmp.Or(own[name], "{0}\x00"+name)
	}}).View()
}

// A hold that was open when an older version wrote it to a store is open, and can be settled. test/upgrade opens the
// same keys later, when the holds have lapsed.
func TestHoldsOfOlderVersions(t *testing.T) {
	files, err := filepath.Glob("../../../test/upgrade/testdata/*/store.rdb")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		v := viewOf(t, file)
		v.Begin()
		keeper := v.(store.HoldKeeper)
		open, err := keeper.Holds(context.Background(), []byte("held"), 10)
		require.NoError(t, err)
		require.Len(t, open, 1, file)
		require.Equal(t, "reservation", open[0].ID)
		require.Equal(t, int64(10), open[0].Quantity)
		fixed, err := window.NewLimit(100, 946080000)
		require.NoError(t, err)
		rule := limit.Rule{Kind: limit.Fixed, Window: fixed}
		decisions, err := keeper.Settle(context.Background(), &store.Settlement{
			Key: []byte("held"), ID: []byte("reservation"), Quantity: 4,
			Requests: []store.LimitRequest{{Key: []byte("held"), Rule: rule, Quantity: 4, Mode: quota.Take}}})
		require.NoError(t, err)
		require.Equal(t, int64(-6), decisions[0].Taken)
		require.Equal(t, int64(96), decisions[0].Remaining)
	}
}
