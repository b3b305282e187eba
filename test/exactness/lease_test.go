package exactness

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
	"cellserver/test/proxy"
)

// leasing is a load on several cellservers that take tokens ahead.
type leasing struct {
	t       *testing.T
	store   *peer.Server
	servers []*peer.Server
	stop    chan struct{}
	running sync.WaitGroup
	mu      sync.Mutex
	taken   map[string][]span
	refused int
	trip    int64 // the longest round trip with which a server has measured the store's clock, in nanoseconds
}

// span is the time within which a call was allowed.
type span struct{ sent, returned time.Duration }

const (
	leaseSize     = 200
	leaseEmission = 2 * time.Millisecond
	leaseWindow   = 2 // seconds
)

// startLeasing starts servers, and clients that each make a call once every pause.
func startLeasing(t *testing.T, pause time.Duration, args ...string) *leasing {
	l := &leasing{t: t, store: peer.StartStore(t), stop: make(chan struct{}), taken: map[string][]span{}}
	far := proxy.New(t, l.store.Addr)
	far.SetDelay(5 * time.Millisecond)
	for i := range servers {
		addr := l.store.Addr
		if i == 0 {
			addr = far.Addr
		}
		l.servers = append(l.servers, peer.Start(t, append([]string{"--store", "redis://" + addr, "--store-timeout", "1000",
			"--policies", "testdata/policies.yaml", "--loglevel", "nothing"}, args...)...))
	}
	for n := range 32 {
		l.running.Go(func() { l.client(n, pause) })
	}
	l.running.Go(l.watchClocks)
	t.Cleanup(l.end)
	return l
}

// watchClocks asks the servers again and again how well they know the clock of the store.
func (l *leasing) watchClocks() {
	ticks := time.NewTicker(100 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-ticks.C:
			l.trip = max(l.trip, longestTrip(l.servers))
		}
	}
}

func (l *leasing) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.running.Wait()
}

// client takes from three keys, and goes to another server if its server ends.
func (l *leasing) client(n int, pause time.Duration) {
	random := rand.New(rand.NewPCG(uint64(n), 1))
	ticks := time.NewTicker(pause)
	defer ticks.Stop()
	for at := n; ; at++ {
		client := connect(l.servers[at%servers])
		for failed := false; !failed; {
			select {
			case <-l.stop:
				client.Close()
				return
			case <-ticks.C:
			}
			words := []any{"CL.THROTTLE", "throttle", leaseSize - 1, int64(time.Second / leaseEmission), 1}
			switch random.IntN(3) {
			case 0:
				words = []any{"CL.FIXED", "fixed", leaseSize, leaseWindow}
			case 1:
				words = []any{"CL.TAKE", "policy", "hot"}
			}
			sent := now()
			reply, err := client.Do(context.Background(), words...).Int64Slice()
			failed = err != nil && !isStoreError(err)
			l.note(words[1].(string), span{sent, now()}, err == nil && reply[0] == 0)
		}
		client.Close()
	}
}

// A policy has leases although the servers have none for other calls. A ban takes effect within one
// lease.
func TestPolicyWithALease(t *testing.T) {
	l := startLeasing(t, 5*time.Millisecond)
	peer.Until(t, "calls that are decided from blocks", func() bool { return l.counted("store_lease_spent") > 100 })
	client := connect(l.servers[0])
	defer client.Close()
	peer.Until(t, "a ban, which a busy machine may answer too late", func() bool {
		err := client.Do(t.Context(), "CL.BAN", "policy", "hot", "1h").Err()
		assert.True(t, err == nil || isStoreError(err), "%v", err)
		return err == nil
	})
	banned := now()
	l.progress(300)
	l.end()
	for _, s := range l.taken["policy"] {
		require.Less(t, s.sent, banned+100*time.Millisecond, "a lease")
	}
}

func isStoreError(err error) bool { return len(err.Error()) > 5 && err.Error()[:5] == "STORE" }

func (l *leasing) note(key string, s span, allowed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if allowed {
		l.taken[key] = append(l.taken[key], s)
	} else {
		l.refused++
	}
}

// progress waits until so many more calls were allowed.
func (l *leasing) progress(n int) {
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.taken["throttle"]) + len(l.taken["fixed"]) + len(l.taken["policy"])
	}
	end := count() + n
	peer.Until(l.t, "calls that are allowed", func() bool { return count() >= end })
}

// counted returns the sum of a field of INFO.
func (l *leasing) counted(field string) (sum int) {
	for _, s := range l.servers {
		client := connect(s)
		defer client.Close()
		info, err := client.InfoMap(context.Background(), "store").Result()
		if err == nil {
			n, _ := strconv.Atoi(info["Store"][field])
			sum += n
		}
	}
	return sum
}

// excess returns how many calls a window has beyond the promise of a throttle. It counts the calls that began and
// ended within the window. A process may be wrong about the store's clock by half a round trip.
func excess(spans []span, size int, emission, wrong time.Duration) (most int) {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b span) int { return int(a.returned - b.returned) })
	for _, first := range spans {
		count := 0
		for _, s := range spans {
			if s.sent < first.sent {
				continue
			}
			count++
			promised := size + int((s.returned-first.sent+wrong)/emission) + 1
			most = max(most, count-promised)
		}
	}
	return most
}

// Several servers take tokens ahead, one of them far from the store. Servers are stopped, continued and killed. No
// window has more than the limit promises.
func TestLeasesAdmitNoMore(t *testing.T) {
	t.Parallel()
	l := startLeasing(t, 10*time.Millisecond, "--store-lease", "100")
	l.progress(300)
	for range amount(2, 10) {
		l.servers[1].Signal(syscall.SIGSTOP)
		l.progress(200)
		l.servers[1].Signal(syscall.SIGCONT)
		l.progress(200)
	}
	l.servers[2].Signal(syscall.SIGKILL)
	l.servers[2].Wait()
	l.progress(300)
	var spent int
	peer.Until(t, "calls from blocks, and a load that the limit bounds", func() bool {
		spent = l.counted("store_lease_spent")
		l.mu.Lock()
		throttled := slices.Clone(l.taken["throttle"])
		l.mu.Unlock()
		return spent > 0 && excess(throttled, leaseSize/4, 2*leaseEmission, 0) > 0
	})
	l.end()
	wrong := max(2*30*time.Millisecond, 2*time.Duration(l.trip))
	t.Log(len(l.taken["throttle"]), len(l.taken["policy"]), len(l.taken["fixed"]), "allowed,", l.refused, "refused,",
		spent, "from blocks")
	assert.LessOrEqual(t, excess(l.taken["throttle"], leaseSize, leaseEmission, wrong), 0)
	assert.LessOrEqual(t, excess(l.taken["policy"], leaseSize, leaseEmission, wrong), 0)
	// A fixed window may begin at any time, so a span of its length can touch two of them.
	assert.LessOrEqual(t, excess(l.taken["fixed"], 2*leaseSize, leaseWindow*time.Second/leaseSize, wrong), 0)
	assert.Positive(t, excess(l.taken["throttle"], leaseSize/4, 2*leaseEmission, 0), "the test finds an excess")
}
