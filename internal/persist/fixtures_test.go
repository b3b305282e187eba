package persist

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
	"cellserver/internal/window"
)

// openWithoutDelay does what openReal does, as if no time had passed since the folder was written.
func openWithoutDelay(t *testing.T, dir string) (*Folder, *memory.Store) {
	env := newEnvironment(directory(dir))
	env.machine = newStillMachine(store.Reading{Wall: 1})
	env.ensureLocked, env.unlock = func() (bool, error) { return false, nil }, func() {}
	f, err := open(dir, Options{Log: discard}, env)
	require.NoError(t, err)
	data := memory.New(memory.Options{Databases: 16, Clock: f.Clock()})
	t.Cleanup(func() { data.Close() })
	require.NoError(t, f.Load(ctx, data.Load()))
	require.NoError(t, f.Run(data, nil))
	return f, data
}

// A hold that was open when an older version wrote its folder stays open, is written again, and can be
// settled. test/upgrade opens the same folders later, when the holds have lapsed.
func TestHoldsOfOlderVersions(t *testing.T) {
	folders, err := filepath.Glob("../../test/upgrade/testdata/*/keys")
	require.NoError(t, err)
	require.NotEmpty(t, folders)
	for _, folder := range folders {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(folder)))
		for range 2 {
			f, data := openWithoutDelay(t, dir)
			v := data.View()
			v.Begin()
			keeper := v.(store.HoldKeeper)
			open, err := keeper.Holds(ctx, []byte("held"), 10)
			require.NoError(t, err)
			require.Len(t, open, 1, folder)
			require.Equal(t, "reservation", open[0].ID)
			require.Equal(t, int64(10), open[0].Quantity)
			require.NoError(t, f.Close())
		}
		_, data := openWithoutDelay(t, dir)
		v := data.View()
		v.Begin()
		fixed, err := window.NewLimit(100, 946080000)
		require.NoError(t, err)
		rule := limit.Rule{Kind: limit.Fixed, Window: fixed}
		decisions, err := v.(store.HoldKeeper).Settle(ctx, &store.Settlement{Key: []byte("held"), ID: []byte("reservation"),
			Quantity: 4, Requests: []store.LimitRequest{{Key: []byte("held"), Rule: rule, Quantity: 4, Mode: quota.Take}}})
		require.NoError(t, err)
		require.Equal(t, int64(-6), decisions[0].Taken)
		require.Equal(t, int64(96), decisions[0].Remaining)
	}
}
