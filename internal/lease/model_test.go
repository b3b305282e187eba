package lease

import (
	"cmp"
	"flag"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/quota"
)

// naive implements the contract in the simplest way: a map that every call searches as a whole,
// sums without overflow, and waits that are found by trying every instant at which a lease ends.
type naive struct {
	leases     map[string]Lease
	maxHolders int
}

func (n *naive) heldAt(now int64, except string) *big.Int {
	sum := new(big.Int)
	for holder, lease := range n.leases {
		if lease.End > now && holder != except {
			sum.Add(sum, big.NewInt(lease.Quantity))
		}
	}
	return sum
}

func (n *naive) ownAt(now int64, holder string) int64 {
	if lease := n.leases[holder]; lease.End > now {
		return lease.Quantity
	}
	return 0
}

func (n *naive) grants(now int64, r Request) bool {
	but := string(r.holder)
	if r.quantity == 0 {
		but = "" // every lease counts as another's
	}
	sum := n.heldAt(now, but)
	fits := sum.Add(sum, big.NewInt(r.quantity)).Cmp(big.NewInt(r.limit)) <= 0
	return fits || r.quantity > 0 && r.quantity <= n.ownAt(now, string(r.holder))
}

// gap tries every instant at which a lease ends.
func (n *naive) gap(now int64, r Request) (l Gap) {
	for _, ends := range n.sorted(now) {
		switch granted := n.grants(ends.End, r); {
		case !granted && l == Gap{}:
			l = Gap{ends.End - now, quota.Never}
		case granted && l.End > 0 && l.Again == quota.Never:
			l.Again = ends.End - now
		}
	}
	return l
}

func (n *naive) Acquire(now int64, r Request, _ int) (d quota.Decision, changed bool, err error) {
	d = quota.Decision{Limit: r.limit, RetryAfter: quota.Never}
	if !n.grants(now, r) {
		d.Limited = true
		for _, lease := range n.sorted(now) {
			if n.grants(lease.End, r) {
				d.RetryAfter = lease.End - now
				break
			}
		}
	} else if r.quantity > 0 {
		if n.ownAt(now, string(r.holder)) == 0 && len(n.sorted(now)) >= n.maxHolders {
			return quota.Decision{}, false, ErrHolders
		}
		n.leases[string(r.holder)] = Lease{string(r.holder), r.quantity, now + r.ttl}
		d.Taken, changed = r.quantity, true
	}
	if left := new(big.Int).Sub(big.NewInt(r.limit), n.heldAt(now, "")); left.Sign() > 0 {
		d.Remaining = left.Int64()
	}
	for _, lease := range n.sorted(now) {
		d.ResetAfter = lease.End - now
	}
	return d, changed, nil
}

func (n *naive) Renew(now int64, ttl time.Duration, holder []byte) bool {
	own := n.ownAt(now, string(holder))
	if own > 0 {
		n.leases[string(holder)] = Lease{string(holder), own, now + int64(ttl)}
	}
	return own > 0
}

func (n *naive) Release(now int64, holder []byte) int64 {
	own := n.ownAt(now, string(holder))
	delete(n.leases, string(holder))
	return own
}

func (n *naive) sorted(now int64) (leases []Lease) {
	for _, lease := range n.leases {
		if lease.End > now {
			leases = append(leases, lease)
		}
	}
	slices.SortFunc(leases, func(a, b Lease) int {
		return cmp.Or(cmp.Compare(a.End, b.End), cmp.Compare(a.Holder, b.Holder))
	})
	return leases
}

// agrees makes random calls on a table and on the model, and compares the whole state after each.
// The limit changes between calls, but never exceeds the drawn limit, so that no more is ever held.
func agrees(t *rapid.T, key Table) error {
	model := &naive{leases: map[string]Lease{}, maxHolders: rapid.SampledFrom([]int{3, 18, 100}).Draw(t, "max holders")}
	names := rapid.SampledFrom([]int{2, 5, 40}).Draw(t, "names")
	limit := rapid.SampledFrom([]int64{0, 3, 10, 60, math.MaxInt64}).Draw(t, "limit")
	now := epoch
	for range rapid.IntRange(1, 60).Draw(t, "calls") {
		now += rapid.SampledFrom([]int64{0, 0, 0, 1, 5e8, 1e9 - 1, 1e9, 3e9, 2e10}).Draw(t, "gap")
		holder := fmt.Appendf(nil, "h%d", rapid.IntRange(0, names-1).Draw(t, "holder"))
		ttl := rapid.SampledFrom([]int64{1, 2, 3, 10, 60, 1e9}).Draw(t, "ttl")
		var said, want string
		switch rapid.IntRange(0, 8).Draw(t, "command") {
		case 8: // time passes without a call
		case 0:
			said, want = fmt.Sprint(key.Release(now, holder)), fmt.Sprint(model.Release(now, holder))
		case 1:
			ttlDuration := time.Duration(ttl) * time.Second
			said, want = fmt.Sprint(key.Renew(now, ttlDuration, holder)), fmt.Sprint(model.Renew(now, ttlDuration, holder))
		default:
			r := Request{limit: limit, ttl: ttl * 1e9, holder: holder}
			if rapid.IntRange(0, 9).Draw(t, "lower") == 0 {
				r.limit = limit / 2
			}
			r.quantity = rapid.OneOf(
				rapid.Int64Range(0, 3), rapid.Int64Range(0, min(limit, math.MaxInt64-1)+1), rapid.Just(int64(math.MaxInt64)),
			).Draw(t, "quantity")
			said, want = peeks(key, model, now, r)
			said += fmt.Sprintln(key.Acquire(now, r, model.maxHolders))
			want += fmt.Sprintln(model.Acquire(now, r, 0))
		}
		if said != want {
			return fmt.Errorf("at %d %s was told %s, want %s", now-epoch, holder, said, want)
		}
		listed, leases := slices.Collect(key.Holders(now)), model.sorted(now)
		if !slices.Equal(listed, leases) {
			return fmt.Errorf("at %d: lists %v, want %v", now-epoch, listed, leases)
		}
		if leases, plain := key.(*Leases); plain {
			if err := checkInvariants(leases); err != nil {
				return err
			}
		}
		if held := model.heldAt(now, ""); held.Cmp(big.NewInt(limit)) > 0 {
			return fmt.Errorf("at %d: %d are held", now-epoch, held)
		}
		if len(leases) > 0 && key.Expires() != leases[len(leases)-1].End {
			return fmt.Errorf("at %d: expires %d, want %d", now-epoch, key.Expires(), leases[len(leases)-1].End)
		}
	}
	return nil
}

// peeks returns what a table and the model say about a request that is not made.
func peeks(key Table, model *naive, now int64, r Request) (said, want string) {
	d, err := key.Peek(now, r, model.maxHolders)
	said = fmt.Sprint(d, err, key.Untaken(now, r), slices.Collect(key.Holders(now)))
	if err == nil && !d.Limited {
		said += fmt.Sprint(key.Gap(now, r))
		defer func() { want += fmt.Sprint(model.gap(now, r)) }()
	}
	made := &naive{leases: maps.Clone(model.leases), maxHolders: model.maxHolders}
	d, _, err = made.Acquire(now, r, 0)
	leases := model.sorted(now)
	is := quota.Decision{Limit: r.limit, RetryAfter: quota.Never}
	if left := new(big.Int).Sub(big.NewInt(r.limit), model.heldAt(now, "")); left.Sign() > 0 {
		is.Remaining = left.Int64()
	}
	if len(leases) > 0 {
		is.ResetAfter = leases[len(leases)-1].End - now
	}
	return said, fmt.Sprint(d, err, is, leases)
}

// TestMain runs more than rapid's default of 100 cases; a flag on the command line takes
// precedence.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "500"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// tables lists the representations of leases, and a table that converts between them at every call.
var tables = map[string]func() Table{
	"leases":      func() Table { return new(Leases) },
	"few":         func() Table { return new(Few) },
	"one another": func() Table { return new(converting) },
}

// converting is a table that is stored as Few after every other call.
type converting struct {
	many  *Leases
	bytes []byte
}

// now returns the table to call, and what to do after the call.
func (c *converting) now() (Table, func()) {
	if c.many != nil {
		return c.many, func() {
			var few Few
			if !c.many.ToFew(&few, 1<<20) {
				panic("there was room")
			}
			c.many, c.bytes = nil, slices.Clone(few.Bytes())
		}
	}
	few := new(Few)
	few.Load(c.bytes)
	return few, func() { c.many = few.ToLeases() }
}

func (c *converting) Acquire(now int64, r Request, maxHolders int) (quota.Decision, bool, error) {
	table, turn := c.now()
	defer turn()
	return table.Acquire(now, r, maxHolders)
}

func (c *converting) Peek(now int64, r Request, maxHolders int) (quota.Decision, error) {
	table, turn := c.now()
	defer turn()
	return table.Peek(now, r, maxHolders)
}

func (c *converting) Untaken(now int64, r Request) quota.Decision {
	table, turn := c.now()
	defer turn()
	return table.Untaken(now, r)
}

func (c *converting) Gap(now int64, r Request) Gap {
	table, turn := c.now()
	defer turn()
	return table.Gap(now, r)
}

func (c *converting) Renew(now int64, ttl time.Duration, holder []byte) bool {
	table, turn := c.now()
	defer turn()
	return table.Renew(now, ttl, holder)
}

func (c *converting) Release(now int64, holder []byte) int64 {
	table, turn := c.now()
	defer turn()
	return table.Release(now, holder)
}

func (c *converting) Holders(now int64) iter.Seq[Lease] {
	table, _ := c.now()
	return table.Holders(now)
}

func (c *converting) Expires() int64 {
	table, _ := c.now()
	return table.Expires()
}

func (c *converting) Len() int {
	table, _ := c.now()
	return table.Len()
}

func TestLeasesAreTheModels(t *testing.T) {
	for name, table := range tables {
		t.Run("holds: "+name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				if err := agrees(t, table()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
	for name, faulty := range faults {
		t.Run("catches: "+name, func(t *testing.T) {
			draws := rapid.Custom(func(t *rapid.T) error { return agrees(t, faulty()) })
			for seed := range 10_000 {
				if draws.Example(seed) != nil {
					return
				}
			}
			t.Fatal("the fault went unseen")
		})
	}
}

// faultyTable is a table with one planted fault.
type faultyTable struct {
	*Leases
	acquire func(s *Leases, now int64, r Request, maxHolders int) (quota.Decision, bool, error)
	peek    func(s *Leases, now int64, r Request, maxHolders int) (quota.Decision, error)
	untaken func(s *Leases, now int64, r Request) quota.Decision
	gap     func(s *Leases, now int64, r Request) Gap
	renew   func(s *Leases, now int64, ttl time.Duration, holder []byte) bool
	release func(s *Leases, now int64, holder []byte) int64
	holders func(s *Leases, now int64) iter.Seq[Lease]
}

func (f faultyTable) Acquire(now int64, r Request, maxHolders int) (quota.Decision, bool, error) {
	if f.acquire == nil {
		return f.Leases.Acquire(now, r, maxHolders)
	}
	return f.acquire(f.Leases, now, r, maxHolders)
}

func (f faultyTable) Peek(now int64, r Request, maxHolders int) (quota.Decision, error) {
	if f.peek == nil {
		return f.Leases.Peek(now, r, maxHolders)
	}
	return f.peek(f.Leases, now, r, maxHolders)
}

func (f faultyTable) Untaken(now int64, r Request) quota.Decision {
	if f.untaken == nil {
		return f.Leases.Untaken(now, r)
	}
	return f.untaken(f.Leases, now, r)
}

func (f faultyTable) Gap(now int64, r Request) Gap {
	if f.gap == nil {
		return f.Leases.Gap(now, r)
	}
	return f.gap(f.Leases, now, r)
}

func (f faultyTable) Renew(now int64, ttl time.Duration, holder []byte) bool {
	if f.renew == nil {
		return f.Leases.Renew(now, ttl, holder)
	}
	return f.renew(f.Leases, now, ttl, holder)
}

func (f faultyTable) Release(now int64, holder []byte) int64 {
	if f.release == nil {
		return f.Leases.Release(now, holder)
	}
	return f.release(f.Leases, now, holder)
}

func (f faultyTable) Holders(now int64) iter.Seq[Lease] {
	if f.holders == nil {
		return f.Leases.Holders(now)
	}
	return f.holders(f.Leases, now)
}

// acquiring makes a table whose Acquire is faulty.
func acquiring(acquire func(s *Leases, now int64, r Request,
	maxHolders int) (quota.Decision, bool, error)) func() Table {
	return func() Table { return faultyTable{Leases: new(Leases), acquire: acquire} }
}

// misreporting makes a table that stores the right leases and returns wrong decisions.
func misreporting(falsify func(s *Leases, d *quota.Decision, r Request)) func() Table {
	return acquiring(func(s *Leases, now int64, r Request, maxHolders int) (quota.Decision, bool, error) {
		d, changed, err := s.Acquire(now, r, maxHolders)
		if err == nil {
			falsify(s, &d, r)
		}
		return d, changed, err
	})
}

var faults = map[string]func() Table{
	"a lease that is asked for again counts twice": acquiring(
		func(s *Leases, now int64, r Request, maxHolders int) (quota.Decision, bool, error) {
			d, changed, err := s.Acquire(now, r, maxHolders)
			if position := s.position(r.holder); changed && position >= 0 && s.held+r.quantity > 0 && d.Remaining > 0 {
				s.held++
			}
			return d, changed, err
		}),
	"an expired lease still counts": acquiring(
		func(s *Leases, now int64, r Request, maxHolders int) (quota.Decision, bool, error) {
			return s.Acquire(now-5e8, r, maxHolders)
		}),
	"a lease ends one ns early": acquiring(
		func(s *Leases, now int64, r Request, maxHolders int) (quota.Decision, bool, error) {
			r.ttl--
			return s.Acquire(now, r, maxHolders)
		}),
	"a limited call loses the old lease": acquiring(
		func(s *Leases, now int64, r Request, maxHolders int) (quota.Decision, bool, error) {
			d, changed, err := s.Acquire(now, r, maxHolders)
			if d.Limited {
				s.Release(now, r.holder)
			}
			return d, changed, err
		}),
	"a limited call renews the old lease": acquiring(
		func(s *Leases, now int64, r Request, maxHolders int) (quota.Decision, bool, error) {
			d, changed, err := s.Acquire(now, r, maxHolders)
			if d.Limited {
				s.Renew(now, time.Duration(r.ttl), r.holder)
			}
			return d, changed, err
		}),
	"a lowered limit refuses who asks again": acquiring(
		func(s *Leases, now int64, r Request, maxHolders int) (quota.Decision, bool, error) {
			if s.held > r.limit && r.quantity > 0 {
				return s.Acquire(now, Request{limit: r.limit, holder: []byte("?"), quantity: r.quantity}, maxHolders)
			}
			return s.Acquire(now, r, maxHolders)
		}),
	"0 releases": acquiring(
		func(s *Leases, now int64, r Request, maxHolders int) (quota.Decision, bool, error) {
			if r.quantity == 0 {
				s.Release(now, r.holder)
			}
			return s.Acquire(now, r, maxHolders)
		}),
	"one holder too many": acquiring(
		func(s *Leases, now int64, r Request, maxHolders int) (quota.Decision, bool, error) {
			return s.Acquire(now, r, maxHolders+1)
		}),
	"one permit too many": acquiring(
		func(s *Leases, now int64, r Request, maxHolders int) (quota.Decision, bool, error) {
			r.limit = max(r.limit, r.limit+1)
			return s.Acquire(now, r, maxHolders)
		}),
	"retry is reset": misreporting(func(_ *Leases, d *quota.Decision, _ Request) {
		d.RetryAfter = min(d.RetryAfter, 1) * d.ResetAfter
	}),
	"retry waits for the own lease": misreporting(func(s *Leases, d *quota.Decision, r Request) {
		if position := s.position(r.holder); d.RetryAfter > 0 && position >= 0 && s.live > 0 {
			last := s.slots[s.order[s.live-1]].End
			d.RetryAfter = max(d.RetryAfter, s.slots[s.order[position]].End-(last-d.ResetAfter))
		}
	}),
	"remaining is below zero": misreporting(func(s *Leases, d *quota.Decision,
		r Request) {
		d.Remaining = r.limit - s.held
	}),
	"a peek takes": func() Table {
		return faultyTable{Leases: new(Leases),
			peek: func(s *Leases, now int64, r Request, maxHolders int) (quota.Decision, error) {
				d, _, err := s.Acquire(now, r, maxHolders)
				return d, err
			}}
	},
	"a peek takes nothing into account": func() Table {
		return faultyTable{Leases: new(Leases),
			peek: func(s *Leases, now int64, r Request, maxHolders int) (quota.Decision, error) {
				d, err := s.Peek(now, r, maxHolders)
				d.ResetAfter = max(s.Expires()-now, 0)
				return d, err
			}}
	},
	"untaken is as if it were taken": func() Table {
		return faultyTable{Leases: new(Leases), untaken: func(s *Leases, now int64, r Request) quota.Decision {
			d := s.Untaken(now, r)
			d.Remaining = max(d.Remaining-r.quantity, 0)
			return d
		}}
	},
	"a gap ends when all leases do": func() Table {
		return faultyTable{Leases: new(Leases), gap: func(s *Leases, now int64, r Request) Gap {
			l := s.Gap(now, r)
			if l.Again > 0 {
				l.Again = s.Expires() - now
			}
			return l
		}}
	},
	"no gap": func() Table {
		return faultyTable{Leases: new(Leases), gap: func(*Leases, int64, Request) Gap { return Gap{} }}
	},
	"the wrong holder releases": func() Table {
		return faultyTable{Leases: new(Leases), release: func(s *Leases, now int64, holder []byte) int64 {
			if s.live > 0 && s.position(holder) < 0 {
				holder = []byte(s.slots[s.order[0]].Holder)
			}
			return s.Release(now, holder)
		}}
	},
	"an expired lease is renewed": func() Table {
		return faultyTable{Leases: new(Leases), renew: func(s *Leases, now int64, ttl time.Duration, holder []byte) bool {
			if position := s.position(holder); position >= 0 {
				s.move(position, now+int64(ttl))
				return true
			}
			return false
		}}
	},
	"renewing never shortens": func() Table {
		return faultyTable{Leases: new(Leases), renew: func(s *Leases, now int64, ttl time.Duration, holder []byte) bool {
			if position := s.position(holder); position >= 0 {
				ttl = max(ttl, time.Duration(s.slots[s.order[position]].End-now))
			}
			return s.Renew(now, ttl, holder)
		}}
	},
	"expired leases are listed": func() Table {
		return faultyTable{Leases: new(Leases), holders: func(s *Leases, _ int64) iter.Seq[Lease] { return s.Holders(0) }}
	},
	"leases are listed in the order in which they came": func() Table {
		return faultyTable{Leases: new(Leases), holders: func(s *Leases, now int64) iter.Seq[Lease] {
			return slices.Values(slices.DeleteFunc(slices.Clone(s.slots), func(l Lease) bool { return l.End <= now }))
		}}
	},
}

// FuzzLeases passes instants that no correct clock returns. The structure must stay consistent, and
// replies within their bounds.
func FuzzLeases(f *testing.F) {
	f.Add(epoch, epoch+1, int64(0), int64(3), int64(2), int64(1))
	f.Add(int64(math.MinInt64), int64(math.MaxInt64), int64(-1), int64(math.MaxInt64), int64(math.MaxInt64), int64(1e9))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MinInt64), int64(0), int64(1), int64(1e9))
	f.Fuzz(func(t *testing.T, first, second, third, limit, quantity, ttl int64) {
		var key Leases
		for _, now := range []int64{first, second, third, second, first} {
			for i, holder := range []string{"a", "b", "c"} {
				r, err := NewRequest(limit, quota.Seconds(ttl), []byte(holder), quantity)
				if err != nil {
					return
				}
				d, _, err := key.Acquire(now, r, 2)
				if err == nil {
					require.True(t, d.Remaining >= 0 && d.Remaining <= d.Limit && d.ResetAfter >= 0, "%+v", d)
					require.True(t, d.RetryAfter == quota.Never || d.Limited && d.RetryAfter > 0, "%+v", d)
				}
				require.NoError(t, checkInvariants(&key))
				if key.Renew(third, time.Duration(r.ttl), []byte("a")); i == 2 {
					key.Release(now, []byte("b"))
				}
				require.NoError(t, checkInvariants(&key))
			}
		}
	})
}

// checkInvariants reports violations of what the methods rely on: order lists every slot once,
// those in use first and sorted; each holder is found in its slot; held is the sum of the
// quantities.
func checkInvariants(s *Leases) error {
	listed := slices.Sorted(slices.Values(s.order))
	held := int64(0)
	for i, place := range s.order {
		lease := s.slots[place]
		held += lease.Quantity
		if listed[i] != int32(i) || i < s.live != (lease != Lease{}) {
			return fmt.Errorf("%v of which %d live do not list the places %v", s.order, s.live, s.slots)
		}
		if i < s.live && s.position([]byte(lease.Holder)) != i {
			return fmt.Errorf("%s is not found at %d of %v in %v", lease.Holder, i, s.order, s.slots)
		}
	}
	summed := *s
	summed.blocks = nil
	if summed.sumBlocks(); !slices.Equal(trimmed(summed.blocks), trimmed(s.blocks)) {
		return fmt.Errorf("sums %v, want %v", s.blocks, summed.blocks)
	}
	if len(s.slots) != len(s.order) || held != s.held || len(s.index) != s.live {
		return fmt.Errorf("sum %d, index %v of %v in %v", s.held, s.index, s.order, s.slots)
	}
	return nil
}

// trimmed returns sums without the blocks at the end that have no lease.
func trimmed(b blocks) blocks {
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return b
}

// Sums of blocks are right with thousands of leases too, whatever moves between blocks.
func TestBlocks(t *testing.T) {
	random, key := rand.New(rand.NewPCG(9, 10)), new(Leases)
	now := epoch
	for i := range 6000 {
		holder, ttl := fmt.Appendf(nil, "h%d", random.IntN(1000)), 1+random.Int64N(2000)
		r, err := NewRequest(math.MaxInt64, quota.Seconds(ttl), holder, 1+random.Int64N(3))
		require.NoError(t, err)
		switch random.IntN(8) {
		case 0:
			key.Release(now, holder)
		case 1:
			key.Renew(now, time.Duration(ttl)*time.Second, holder)
		case 2:
			now += random.Int64N(3e9)
			if random.IntN(100) == 0 {
				now += random.Int64N(500e9)
			}
		default:
			_, _, err = key.Acquire(now, r, 1000)
			require.NoError(t, err)
		}
		if i%10 == 0 {
			require.NoError(t, checkInvariants(key))
			require.NoError(t, checkEnd(key, now, holder, random))
		}
	}
	require.Greater(t, len(key.blocks), 3)
	key.blocks[1]++
	key.blocks[2]--
	require.Error(t, checkInvariants(key), "a lease that has not moved to its block must be found")
}

// checkEnd compares when a request would be granted with the sums of all leases.
func checkEnd(key *Leases, now int64, holder []byte, random *rand.Rand) error {
	key.expire(now)
	others, position := key.held, key.position(holder)
	if position >= 0 {
		others -= key.quantity(position)
	}
	if others == 0 {
		return nil
	}
	permits, left := random.Int64N(others), others
	for l := range key.Holders(now) {
		if l.Holder == string(holder) {
			continue
		}
		if left -= l.Quantity; left <= permits {
			if end := key.endOfOthers(position, permits); end != l.End {
				return fmt.Errorf("%d of %d permits are free at %d, want %d", others-permits, others, end, l.End)
			}
			return nil
		}
	}
	return fmt.Errorf("%d of %d permits are never free", others-permits, others)
}
