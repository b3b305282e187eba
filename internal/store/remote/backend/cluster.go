package backend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"cellserver/internal/store/remote/combine"
)

const (
	// reloadEvery is the time after which the slots are read again although nothing has failed.
	reloadEvery = 30 * time.Second
	// reloadPause is the time between two readings, so that a cluster that is being changed is not
	// asked all the time.
	reloadPause = 200 * time.Millisecond
)

// cluster is the topology of a cluster. A reply of MOVED changes one slot at once, and has all slots
// read again.
type cluster struct {
	backend *Backend
	slots   [Slots]atomic.Int64 // number of the primary, plus 1; 0: none
	wake    chan struct{}       // the slots are to be read again; holds one element

	all atomic.Pointer[[]combine.Primary] // the primaries in slots

	mu    sync.Mutex // held while slots and all are changed
	nodes []string   // addresses that are asked for the slots: primaries and replicas
}

func newCluster(b *Backend) *cluster {
	c := &cluster{backend: b, wake: make(chan struct{}, 1), nodes: b.config.Address.Nodes}
	c.all.Store(new([]combine.Primary))
	c.reload()
	return c
}

// held is nil: the nodes of a cluster say MOVED as soon as they have lost a slot.
func (c *cluster) held() <-chan struct{} { return nil }

func (c *cluster) primary(key string) combine.Primary { return c.owner(Slot(key)) }

func (c *cluster) owner(slot int) combine.Primary { return combine.Primary(c.slots[slot].Load() - 1) }

// primaries is called for each command, so it only returns what collect has found.
func (c *cluster) primaries() []combine.Primary { return *c.all.Load() }

// collect finds the servers that hold slots. c.mu must be held.
func (c *cluster) collect() {
	var all []combine.Primary
	for slot := range Slots {
		if p := c.owner(slot); p != combine.NoPrimary && (len(all) == 0 || all[len(all)-1] != p) {
			all = append(all, p)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	c.all.Store(&all)
}

func (c *cluster) address(_ context.Context, p combine.Primary) (string, error) {
	return c.backend.server(p).name, nil
}

func (c *cluster) moved(slot int, address string) {
	owner := int64(c.backend.numberOf(address)) + 1
	c.mu.Lock()
	if c.slots[slot].Swap(owner) != owner {
		c.collect()
	}
	c.mu.Unlock()
	c.reload()
}

func (c *cluster) lost(combine.Primary) { c.reload() }

// reload has the slots read again, soon.
func (c *cluster) reload() {
	select {
	case c.wake <- struct{}{}:
	default: // they are about to be read
	}
}

func (c *cluster) probeSlot(p combine.Primary) int {
	for slot := range Slots {
		if c.owner(slot) == p {
			return slot
		}
	}
	return 0 // a node without slots replies MOVED, which does no harm
}

// watch reads the slots when it is woken, and at intervals.
func (c *cluster) watch(ctx context.Context) {
	var before string
	for {
		err := c.read(ctx)
		if ctx.Err() != nil {
			return
		}
		before = c.note(err, before)
		after := reloadEvery
		if err != nil {
			after = reloadPause
		}
		if !sleep(ctx, reloadPause, nil) || !sleep(ctx, after-reloadPause, c.wake) {
			return
		}
	}
}

// note logs why the slots cannot be read, when it changes. It returns what was logged.
func (c *cluster) note(err error, before string) string {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == before:
	case text == "":
		c.backend.config.Log.Info("store: the cluster says again which node has which slots")
	default:
		c.backend.config.Log.Warn("store: no node of the cluster says which has which slots", "error", text)
	}
	return text
}

// sleep waits, until it is woken. It returns false if the context is done.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-wake:
	}
	return true
}

// read asks the nodes, one after the other in random order, until one says which node has which slots.
// A node that knows that it is cut off from the others is believed only if all nodes that answer are
// cut off. The nodes of the URL are asked last, because the cluster may no longer consist of them.
func (c *cluster) read(ctx context.Context) error {
	c.mu.Lock()
	nodes := slices.Clone(c.nodes)
	c.mu.Unlock()
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	for _, node := range c.backend.config.Address.Nodes {
		if !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	var errs []error
	var doubtful []redis.ClusterSlot
	var doubted string
	for _, node := range nodes {
		slots, down, err := c.ask(ctx, node)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", node, err))
		case down:
			doubtful, doubted = slots, node
		default:
			c.learn(slots, node)
			return nil
		}
	}
	if doubtful == nil {
		return errors.Join(errs...)
	}
	c.learn(doubtful, doubted)
	return nil
}

// ask asks a node for the slots, and whether it can reach most of the others.
func (c *cluster) ask(ctx context.Context, node string) (_ []redis.ClusterSlot, down bool, _ error) {
	ctx, cancel := context.WithTimeout(ctx, c.backend.config.Silence)
	defer cancel()
	conn, err := c.backend.dial(ctx, node, 0)
	if err != nil {
		return nil, false, err
	}
	defer conn.close()
	defer context.AfterFunc(ctx, conn.abort)()
	//lint:ignore SA1019 Redis 6.2 has no CLUSTER SHARDS
	slots, err := conn.client.ClusterSlots(ctx).Result()
	if err == nil && len(slots) == 0 {
		err = errors.New("the node knows no slots")
	}
	if err != nil {
		return nil, false, err
	}
	state := conn.client.ClusterInfo(ctx).Val() // empty if the user may not ask
	return slots, strings.Contains(state, "cluster_state:fail"), nil
}

// learn replaces the known slots.
func (c *cluster) learn(ranges []redis.ClusterSlot, asked string) {
	var owners [Slots]int64
	var nodes []string
	for _, r := range ranges {
		for i, node := range r.Nodes {
			address := nodeAddress(node.Addr, asked)
			if address == "" {
				continue
			}
			if !slices.Contains(nodes, address) {
				nodes = append(nodes, address)
			}
			if i == 0 && 0 <= r.Start && r.End < Slots {
				number := int64(c.backend.numberOf(address)) + 1
				for slot := r.Start; slot <= r.End; slot++ {
					owners[slot] = number
				}
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for slot := range owners {
		c.slots[slot].Store(owners[slot])
	}
	c.collect()
	c.nodes = nodes
}
