package decide

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"cellserver/internal/command"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// Fallback answers decisions that a store over a network could not make, as --store-fails says. It
// answers only decisions about a quantity: leases, and all calls of a transaction, get the error.
type Fallback struct {
	// NewLocal returns an empty store in the memory of this process.
	NewLocal func() store.Store
	Log      *slog.Logger

	policy      atomic.Uint32
	answers     [len(Answers)]atomic.Int64 // number of decisions that the store did not make, by policy
	failing     atomic.Bool                // the store fails, or has failed within recoveredAfter
	lastFailure atomic.Int64               // instant, by the clock of the process

	// local makes the decisions of the policy local; nil while it has made none. mu guards its view.
	local atomic.Pointer[localStore]
	mu    sync.Mutex
}

// localStore is a store in memory, with the one view that all calls use.
type localStore struct {
	store.Store
	view store.View
}

// Answers are the values of --store-fails. The constants below are their indexes.
var Answers = [...]string{"error", "allow", "deny", "local"}

const (
	replyError = iota
	replyAllowed
	replyLimited
	decideLocally
)

// An outage is over when no decision has failed for recoveredAfter: if the store has several servers,
// one may fail while others answer. When the store decides about keys again, the local store forgets
// them. After forgetAfter without a failure, it forgets all keys.
const (
	recoveredAfter = 10 * time.Second
	forgetAfter    = time.Minute
)

// SetPolicy sets the policy to one of Answers.
func (f *Fallback) SetPolicy(name string) { f.policy.Store(uint32(slices.Index(Answers[:], name))) }

// watch wraps the Run of a row, so that the Fallback notices when the store makes decisions again. If
// the store cannot fail, rows are not wrapped.
func (f *Fallback) watch(run func(c *command.Call) error) func(c *command.Call) error {
	return func(c *command.Call) error {
		c.WithoutStore = false
		err := run(c)
		if err == nil && !c.WithoutStore && !c.InTransaction {
			f.decided(c)
		}
		return err
	}
}

// decided is called after a decision of the store.
func (f *Fallback) decided(c *command.Call) {
	quiet := time.Duration(c.Now() - f.lastFailure.Load())
	if local := f.local.Load(); local != nil {
		f.forget(c, local, quiet >= forgetAfter)
	}
	if f.failing.Load() && quiet >= recoveredAfter && f.failing.CompareAndSwap(true, false) {
		f.Log.Info("the store makes decisions again")
	}
}

// forget removes the keys of a call from the local store, or, if all is set, closes the store with all its keys.
func (f *Fallback) forget(c *command.Call, local *localStore, all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if all {
		if f.local.CompareAndSwap(local, nil) {
			_ = local.Close() // a store in memory has nothing to report
		}
		return
	}
	keys := c.Row.TouchedKeys(nil, c.Words, c.Snapshot)
	local.view.Select(c.View.Selected())
	_, _ = local.view.Delete(c.Context, keys) // it never fails in memory
}

// policyFor returns the policy for a decision that the store has not made because of err, and
// counts it. The policy is replyError if the error is to be returned.
func (f *Fallback) policyFor(c *command.Call, err error) int {
	contended := errors.Is(err, store.ErrContended)
	if f.Log == nil || c.InTransaction || !contended && !isFailure(err) {
		return replyError
	}
	if c.Context.Err() != nil {
		return replyError // the client was disconnected, which says nothing about the store
	}
	policy := int(f.policy.Load())
	if contended {
		return f.policyForContended(c, policy)
	}
	f.answers[policy].Add(1)
	f.lastFailure.Store(c.Now())
	if f.failing.CompareAndSwap(false, true) {
		f.Log.Warn("the store does not make decisions: they are answered as --store-fails says",
			"store-fails", Answers[policy], "error", err)
	}
	c.WithoutStore = true
	return policy
}

// isFailure reports whether the store cannot decide at present, whoever asks.
func isFailure(err error) bool {
	var refused *store.RefusedError
	return errors.Is(err, store.ErrDown) || errors.Is(err, store.ErrUnavailable) ||
		errors.As(err, &refused) && refused.Fails()
}

// policyForContended returns the policy for a decision on a key that too many calls use at once. The
// store does not fail then. The policies allow and local do not apply: they would admit the calls that
// lose, and so lift the limit from the very keys that need it.
func (f *Fallback) policyForContended(c *command.Call, policy int) int {
	if policy != replyLimited {
		policy = replyError
	}
	f.answers[policy].Add(1)
	c.WithoutStore = true
	return policy
}

// decide answers a decision that the store has not made because of err, or returns an error.
func (f *Fallback) decide(a *attempt, err error) (decisions []quota.Decision, allowed bool, _ error) {
	c, k := a.call, a.of
	if slices.ContainsFunc(k.asked, func(r store.LimitRequest) bool { return r.Lease != nil }) {
		return nil, false, err
	}
	switch policy := f.policyFor(c, err); policy {
	case replyError:
		return nil, false, err
	case decideLocally:
		// The local store has neither standings nor waiting calls.
		a.wait, a.judges, a.failed, a.silent = wait{}, false, nil, true
		f.mu.Lock()
		defer f.mu.Unlock()
		decisions, allowed, err = a.make(c.Context, f.localView(c))
		return slices.Clone(decisions), allowed, err // the view reuses their memory in its next call
	default:
		allowed = true
		for i := range k.asked {
			d := fixedDecision(policy, &k.asked[i])
			decisions, allowed = append(decisions, d), allowed && !d.Limited
		}
		return decisions, allowed, nil
	}
}

// localView returns the view of the local store for a call. f.mu must be locked.
func (f *Fallback) localView(c *command.Call) store.View {
	local := f.local.Load()
	if local == nil {
		data := f.NewLocal()
		local = &localStore{data, data.View()}
		f.local.Store(local)
	}
	local.view.Begin()
	local.view.Select(c.View.Selected())
	if c.Server.Hooks.Has(command.Full) {
		return local.view.WithoutGrowth()
	}
	return local.view
}

// fixedDecision returns the decision of the policies allow and deny. A limit that blocks its key
// blocks it even if the store fails.
func fixedDecision(policy int, r *store.LimitRequest) quota.Decision {
	switch {
	case canLimit(r) && r.Rule.Blocks(r.Quantity, r.Mode):
		return quota.Blocked()
	case policy == replyLimited:
		return quota.Decision{Limited: true, Limit: r.Rule.Size(), RetryAfter: int64(time.Second),
			ResetAfter: int64(time.Second)}
	}
	return quota.Decision{Limit: r.Rule.Size(), RetryAfter: quota.Never, Taken: max(r.Quantity, 0)}
}

// FreedBytes returns how many bytes of keys of the local store have become garbage.
func (f *Fallback) FreedBytes() int64 {
	if local := f.local.Load(); local != nil {
		if m, ok := local.Store.(interface{ FreedBytes() int64 }); ok {
			return m.FreedBytes()
		}
	}
	return 0
}

// OffHeapBytes returns the memory of the local store outside of Go's heap.
func (f *Fallback) OffHeapBytes() int64 {
	if local := f.local.Load(); local != nil {
		if m, ok := local.Store.(interface{ OffHeapBytes() int64 }); ok {
			return m.OffHeapBytes()
		}
	}
	return 0
}
