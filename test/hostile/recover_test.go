package hostile

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/racetest"
)

// After all attacks at once, over and over, no connection and no file descriptor is left, and
// memory is nearly as before.
func TestNothingIsLeftBehind(t *testing.T) {
	const bound = 64 << 20 // bytes above the start: Go's heap keeps some
	server := startLogging(t)
	w := watch(t, server)
	store(t, server, 20_000, "key")
	for _, a := range Attacks() { // the first run allocates memory that stays, such as pooled buffers
		require.NoError(t, a.Run(server.Addr, rand.New(rand.NewPCG(0, 0))), a.Name)
	}
	w.becomes("connected_clients", 1)
	resident, files := w.number("used_memory_rss"), w.files()

	kinds, peak := Attacks(), 0
	start := time.Now()
	require.NoError(t, together(4*len(kinds)*3, func(i int) error {
		a := kinds[i%len(kinds)]
		if err := a.Run(server.Addr, rand.New(rand.NewPCG(uint64(i), 0))); err != nil {
			return fmt.Errorf("%s, seed %d: %w", a.Name, i, err)
		}
		return nil
	}))
	took := time.Since(start)
	peak = w.number("used_memory_rss")
	w.becomes("connected_clients", 1)
	until(t, func() bool { return w.files() <= files },
		func() string { return fmt.Sprint(w.files(), " files, before ", files) })
	if !racetest.Enabled { // the race detector's own memory grows with all memory ever used
		until(t, func() bool { return w.number("used_memory_rss") < resident+bound }, func() string {
			return fmt.Sprintf("%d bytes resident, before %d", w.number("used_memory_rss"), resident)
		})
	}
	t.Logf("resident: %d MiB before, %d MiB after %s of attacks, %d MiB when idle", resident>>20, peak>>20, took,
		w.number("used_memory_rss")>>20)
	assert.EqualValues(t, 20_000, w.DBSize(w.ctx).Val(), "the number of keys has changed")
}
