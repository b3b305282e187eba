package hostile

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// After every attack at once, over and over, nothing of it stays: no connection, no descriptor, no
// memory to speak of.
func TestNothingStays(t *testing.T) {
	const bound = 64 << 20 // bytes resident beyond what it was: the collector keeps some for the next call
	server := tolerant(t)
	w := watch(t, server)
	store(t, server, 20_000, "key")
	for _, a := range Attacks() { // the first of each makes what stays for good, such as buffers in pools
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
	if !peer.Race { // whose own memory grows with what was ever touched
		until(t, func() bool { return w.number("used_memory_rss") < resident+bound }, func() string {
			return fmt.Sprintf("%d bytes resident, before %d", w.number("used_memory_rss"), resident)
		})
	}
	t.Logf("resident: %d MiB before, %d MiB after %s of attacks, %d MiB when idle", resident>>20, peak>>20, took,
		w.number("used_memory_rss")>>20)
	assert.EqualValues(t, 20_000, w.DBSize(w.ctx).Val(), "no key came or went")
}
