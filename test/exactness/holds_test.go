package exactness

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
	"cellserver/test/proxy"
)

// holders are clients that charge an estimate and correct it. They repeat each call, at one server after the
// other, until it is decided.
type holders struct {
	servers  []*peer.Server
	refunds  bool // a planted fault: they give back without a hold
	repeated atomic.Int64
	settled  atomic.Int64
	used     atomic.Int64
}

const estimated = 10

func (h *holders) run(client, calls int) {
	for n := range calls {
		id, actual := fmt.Sprint(client, "-", n), int64((client+n)%(estimated+5))
		charge := []any{"CL.FIXED", "holds", long, long, estimated, "HOLD", id, "1h"}
		correct := []any{"CL.FIXED", "holds", long, long, actual, "SETTLE", id}
		if h.refunds {
			correct = []any{"CL.FIXED", "holds", long, long, actual - estimated, "FORCE"}
		}
		for i, words := range [][]any{charge, correct} {
			for try := client + n + i; !h.make(try, words); try++ {
				h.repeated.Add(1)
			}
		}
		h.settled.Add(1)
		h.used.Add(actual)
	}
}

// make makes a call, and reports whether it was decided.
func (h *holders) make(try int, words []any) bool {
	c := connect(h.servers[try%len(h.servers)])
	defer c.Close()
	return c.Do(context.Background(), words...).Err() == nil
}

// holdAmidFaults lets clients charge and correct while requests and replies of the store are lost. It
// returns how much is used in the end, and how much should be.
func holdAmidFaults(t *testing.T, h *holders) (used, want int64) {
	const clients, calls = 6, 20
	store := peer.StartStore(t)
	front := proxy.New(t, store.Addr)
	for range 3 {
		h.servers = append(h.servers, peer.Start(t, "--store", "redis://"+front.Addr, "--store-timeout", "1000", "--id-ttl",
			"3600", "--loglevel", "nothing"))
	}
	var running, faults sync.WaitGroup
	for client := range clients {
		running.Go(func() { h.run(client, calls) })
	}
	stop := make(chan struct{})
	faults.Go(func() {
		for i := 0; ; i++ {
			fault := []proxy.Fault{proxy.LoseReply, proxy.TearReply, proxy.LoseRequest}[i%3]
			select {
			case <-front.Arm(fault, "holds", 0):
			case <-stop:
				return
			}
			before := h.settled.Load()
			peer.Until(t, "a settlement after the fault", func() bool {
				return h.settled.Load() > before || h.settled.Load() == clients*calls
			})
		}
	})
	running.Wait()
	close(stop)
	faults.Wait()
	require.NotZero(t, h.repeated.Load())
	peer.Until(t, "an answer", func() bool {
		c := connect(h.servers[0])
		defer c.Close()
		reply, err := c.Do(t.Context(), "CL.FIXED", "holds", long, long, 0, "PEEK").Int64Slice()
		if err == nil {
			used = long - reply[2]
		}
		return err == nil
	})
	return used, h.used.Load()
}

// Each charge is corrected exactly once, whichever server its client reaches, although replies of the store are
// lost.
func TestHoldsAreCorrectedOnce(t *testing.T) {
	t.Parallel()
	used, want := holdAmidFaults(t, &holders{})
	require.Equal(t, want, used)
}

// The test finds that repeated refunds give back twice, unless by chance no refund is repeated.
func TestRepeatedRefundsAreFound(t *testing.T) {
	t.Parallel()
	for range 10 {
		if used, want := holdAmidFaults(t, &holders{refunds: true}); used != want {
			return
		}
	}
	t.Error("no refund that was given twice was found")
}

// Once the server knows what the key holds, HOLD and SETTLE cost a round trip each, the same as their limiter
// without them.
func TestHoldsCostARequest(t *testing.T) {
	t.Parallel()
	store := peer.StartStore(t)
	s := peer.Start(t, "--store", "redis://"+store.Addr, "--store-timeout", "30000")
	ask := func(words ...any) (requests string) {
		peer.Ask(t, s.Addr, append([]any{"CL.FIXED", "key", 1000, long}, words...)...)
		info := peer.Ask(t, s.Addr, "INFO", "store").(string)
		return regexp.MustCompile(`store_requests:(\d+)`).FindStringSubmatch(info)[1]
	}
	var made int
	_, err := fmt.Sscan(ask(1), &made)
	require.NoError(t, err)
	for i := range 5 {
		id := fmt.Sprint("id", i)
		for _, words := range [][]any{{10, "HOLD", id, 60}, {10, "HOLD", id, 60}, {7, "SETTLE", id}, {7, "SETTLE", id}} {
			made++
			require.Equal(t, fmt.Sprint(made), ask(words...), "%v", words)
		}
	}
}
