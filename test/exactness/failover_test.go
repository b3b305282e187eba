package exactness

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"cellserver/internal/store/remote/backend"
	"cellserver/test/peer"
	"cellserver/test/proxy"
)

// marks count up in a key of a primary, until the primary ends. Replicas receive changes in order. So a
// replica that has a count also has every change that was answered before the count was sent.
type marks struct {
	key     string
	sent    []time.Duration // when each count was sent, from 1 on; complete when running has ended
	counted atomic.Int64
	running sync.WaitGroup
}

// mark counts in a key of a server.
func mark(addr, key string) *marks {
	m := &marks{key: key}
	m.running.Go(func() {
		c := peer.Client(&redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 1, DialerRetries: 1})
		defer c.Close()
		ticks := time.NewTicker(time.Millisecond)
		defer ticks.Stop()
		for range ticks.C {
			m.sent = append(m.sent, now())
			if c.Incr(context.Background(), key).Err() != nil {
				return
			}
			m.counted.Add(1)
		}
	})
	return m
}

// await waits until there are some counts.
func (m *marks) await(t *testing.T) {
	peer.Until(t, "marks", func() bool { return m.counted.Load() > 10 })
}

// awaitAt waits until a replica has a count: the primary may hold back changes for a replica that has
// just connected.
func (m *marks) awaitAt(t *testing.T, replica string) {
	peer.Until(t, "a mark", func() bool { return peer.Ask(t, replica, "get", m.key) != nil })
}

// kept returns an instant: the new primary has every change that was answered before this instant.
func (m *marks) kept(t *testing.T, addr string) time.Duration {
	m.running.Wait()
	count := peer.Ask(t, addr, "get", m.key)
	if count == nil {
		return 0
	}
	n, err := strconv.Atoi(count.(string))
	require.NoError(t, err)
	return m.sent[n-1]
}

// quickly makes replicas begin without the pause in which a primary waits for more of them.
var quickly = []string{"--repl-diskless-sync-delay", "0"}

// A replica becomes the primary, and clients are directed to it, long after it has received its last
// change. What was admitted in between is forgotten and admitted again, and nothing else.
func TestExactAfterALateFailover(t *testing.T) {
	t.Parallel()
	store := peer.StartStore(t, quickly...)
	replica := peer.StartStore(t, append([]string{"--replicaof", "127.0.0.1 " + strconv.Itoa(store.Port)}, quickly...)...)
	peer.Says(t, replica.Addr, "master_link_status:up", "info", "replication")
	front := proxy.New(t, store.Addr)
	all := append(limits(0), &limit{"CL.THROTTLE", "late", 20, 0})
	late := len(all) - 1
	l := startLoad(t, "redis://"+front.Addr, all, "--store-timeout", "1000")
	l.used.Store(int64(late))
	m := mark(store.Addr, "marks")
	m.awaitAt(t, replica.Addr)
	l.progress(hot, 200)

	peer.Ask(t, replica.Addr, "replicaof", "no", "one")
	l.used.Store(int64(len(all)))
	l.progress(late, 60)
	store.Signal(syscall.SIGKILL)
	store.Wait()
	lost := &failover{killed: now(), ended: now(), kept: m.kept(t, replica.Addr)}
	front.SetTarget(replica.Addr)
	front.Cut()
	l.progress(late, 60)
	histories := l.finish()
	require.ErrorContains(t, histories[late].check(), "were admitted", "too many, without the failover")
	check(t, histories, func(string) *failover { return lost })
}

// A primary that Sentinels watch is killed. The changes that its replica had not received are
// forgotten, and no more than those is admitted in excess.
func TestExactWhileSentinelsReplaceThePrimary(t *testing.T) {
	t.Parallel()
	for range amount(1, 5) {
		s := peer.StartSentinels(t, peer.StartStore, nil, quickly...)
		l := startLoad(t, s.URL(), limits(amount(100, 1000)), "--store-timeout", "1000")
		m := mark(s.Primary.Addr, "marks")
		m.awaitAt(t, s.Replica.Addr)
		l.progress(hot, 200)
		lost := &failover{killed: now()}
		s.Kill(t)
		lost.ended = now()
		l.progress(hot, 300)
		lost.kept = m.kept(t, s.Replica.Addr)
		check(t, l.finish(), func(string) *failover { return lost })
	}
}

// Slots of a cluster move while they are used, and then a primary is killed.
func TestExactWhileAClusterChanges(t *testing.T) {
	t.Parallel()
	for range amount(1, 5) {
		c := peer.StartCluster(t, peer.StartStore, 3, true, nil, quickly...)
		l := startLoad(t, c.URL(), limits(amount(100, 1000)), "--store-timeout", "1000")
		l.progress(hot, 200)
		home := primaryOf(c, "hot")
		next := (home + 1) % len(c.Primaries)
		for range amount(1, 10) {
			c.Move(t, backend.Slot("hot"), c.Primaries[home], c.Primaries[next])
			l.progress(hot, 100)
			c.Move(t, backend.Slot("hot"), c.Primaries[next], c.Primaries[home])
			l.progress(hot, 100)
		}
		m := mark(c.Primaries[home].Addr, "{hot}marks")
		m.await(t)
		l.progress(hot, 100)
		lost := &failover{killed: now()}
		c.Kill(t, c.Primaries[home].Addr)
		lost.ended = now()
		l.progress(hot, 300)
		lost.kept = m.kept(t, c.Replicas[home].Addr)
		check(t, l.finish(), func(key string) *failover {
			if primaryOf(c, key) == home {
				return lost
			}
			return nil
		})
	}
}

// primaryOf returns which primary of a new cluster has a key.
func primaryOf(c *peer.Cluster, key string) int {
	return backend.Slot(key) * len(c.Primaries) / backend.Slots
}
