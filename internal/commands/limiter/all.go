package limiter

import (
	"bytes"
	"cmp"
	"errors"
	"hash/maphash"

	"cellserver/internal/command"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

func (l *Family) all() *command.Command {
	return &command.Command{
		Name: "cl.all", Group: "limiter", Since: "1.0.0",
		Complexity: "O(N) in the number of limiters, and a comparison of each two keys; O(N) in the holders of each lease",
		Flags:      command.Write | command.Fast, Cost: command.Constant,
		Traits:    command.Decides | command.NamesArguments | command.OneStep,
		Effort:    &command.Effort{Fixed: l.fixedWork},
		Summary:   "Takes from several limiters, and acquires permits, or does none of it (all or nothing).",
		KeyAccess: "RW ACCESS UPDATE",
		Args: []command.Arg{command.Int("count").Min(1).Max(maxRequests),
			command.Word("LIMITER key args... quantity [FORCE] [LIMITER key args... quantity [FORCE] ...] [PEEK] [MS] [VERBOSE] [WAIT ms] [ID token]").Many()},
		AnyMore: true, Keys: command.KeyRules{Find: limiterKeys, First: 3, Peeks: allPeeks, Rights: l.allRights,
			Touched: l.allKeys, SeveralSteps: namesPolicy, Snapshot: func() any { return l.Policies.Snapshot() }},
		Reply: `Each limiter is THROTTLE key max_burst count_per_period period quantity; FIXED, SLIDING or SLIDINGLOG
key limit period quantity; QUOTA key limit unit quantity; ACQUIRE key limit ttl holder quantity; or TAKE subject
policy quantity, which stands for all limits of a policy. count is the number of limiters, 1 to 64. A quantity that
FORCE follows, except that of ACQUIRE and TAKE, is taken if all others are allowed, and limits nothing. The reply:
limited, which is 0 if all limiters allowed their quantities, and 1 if any did not and nothing was taken; retry_after,
the longest of those that limited, -1 if none did or one will never allow it; then the five integers of each limiter;
of a policy, those of the limit that decides, or with VERBOSE the map of CL.TAKE. When limited, remaining and
reset_after of each are its present state, and a forced quantity is shown as allowed.`,
		Run: func(c *command.Call) error {
			takes, rest, err := l.requests(c, c.Words[2:], int(c.Int()))
			defer forgetRequests(c, takes)
			if err == errNamesPolicy {
				return l.decidePolicies(c, len(takes))
			}
			o, ok := allOptionsOf(rest)
			if !ok {
				return o.err // before errors of single numbers
			}
			o.first = len(c.Words) - len(rest)
			if err = cmp.Or(err, o.err); err != nil {
				return err
			}
			if repeatsKey(takes) {
				return errRepeatsKey
			}
			if c.Work > command.MaxLoopWork && c.Session != nil && !c.InTransaction {
				return l.offloadAll(c, takes[0].Key, o)
			}
			return l.decideAll(c, takes, o)
		},
	}
}

// offloadAll has a call made outside the event loop, because it has many leases, or subjects that are long to
// compare with the patterns of their policies.
func (l *Family) offloadAll(c *command.Call, key []byte, o allOptions) error {
	if o.peek {
		o.wait = 0
	}
	return l.Offload(c, key, o.wait)
}

// decideAll makes the decision of CL.ALL, and writes the reply.
func (l *Family) decideAll(c *command.Call, takes []store.LimitRequest, o allOptions) error {
	var w wait
	if !o.peek {
		w = waitFor(c, o.wait)
	}
	w.arriveAll(c, takes)
	if o.hasID() {
		return l.decideAllOnce(c, takes, o, w)
	}
	decisions, allowed, err := w.takeAll(c.Context, c.View, takes, &o)
	assumed := err != nil
	if err != nil {
		decisions, allowed, err = l.decideAllOnError(c, err, decisions, takes, &o)
	} else if w.left > 0 && (!allowed || w.behind) {
		if key, d := w.longest(c, takes, decisions); w.continues(&d) {
			return c.Wait(w.delay(key, &d))
		}
	}
	if err != nil {
		return err
	}
	return l.replyAll(c, takes, &o, command.LimitOutcome{Decisions: decisions, Allowed: allowed, Assumed: assumed})
}

// decideAllOnError is decideOnError for the limiters of CL.ALL. The decisions are those that the store
// has returned with the error.
func (l *Family) decideAllOnError(c *command.Call, err error, decisions []quota.Decision, takes []store.LimitRequest,
	o *allOptions) (_ []quota.Decision, allowed bool, _ error) {
	if !errors.Is(err, store.ErrFull) {
		decisions, allowed, err = l.Fallback.decideAll(c, err, takes, o)
	}
	if !l.limitsFull(err) || decisions == nil {
		return decisions, allowed, err
	}
	for i := range decisions {
		if d := &decisions[i]; d.Limited {
			*d = limitedForMemory(takes[i].Size())
		}
	}
	return decisions, false, nil
}

// allPeeks reports whether PEEK follows the limiters.
func allPeeks(c *command.Call) bool {
	words := c.Words[2:]
	for range c.Int() {
		e := entryOf(words)
		if e.form == nil {
			return false
		}
		words = words[e.words:]
	}
	o, ok := allOptionsOf(words)
	return o.peek && ok
}

// fixedWork returns the work of the leases and the policies of a call in a transaction, which looks policies up
// twice: to find the keys of the call, and to make it.
func (l *Family) fixedWork(words [][]byte) (work int) {
	verbose := command.HasWord(words, "VERBOSE")
	for words = words[min(2, len(words)):]; ; {
		e := entryOf(words)
		switch {
		case e.form == nil:
			return work
		case e.form.kind == store.Lease:
			work += leaseChangeWork
		case e.form.kind == store.None:
			work += 2 * l.Policies.MemberWork(l.Policies.Snapshot(), words[1], words[2], verbose)
		}
		words = words[e.words:]
	}
}

// maxRequests bounds the limiters of one call.
const maxRequests = 64

// entryForm is the form of an entry: one of the limiters of a call.
type entryForm struct {
	name  string
	kind  store.Kind
	words int // with the name, the key and the quantity
}

var entryForms = [...]entryForm{
	{"THROTTLE", store.Throttle, 6},
	{"FIXED", store.Fixed, 5},
	{"SLIDING", store.Sliding, 5},
	{"SLIDINGLOG", store.SlidingLog, 5},
	{"QUOTA", store.Quota, 5},
	{"ACQUIRE", store.Lease, 6},
	{"TAKE", store.None, 4}, // a policy for a subject
}

// entry is one of the limiters of a call.
type entry struct {
	form   *entryForm
	words  int // with FORCE
	forced bool
}

// entryOf returns the entry that the words begin with. Its form is nil if they do not begin with a whole
// one.
func entryOf(words [][]byte) (e entry) {
	if len(words) == 0 {
		return e
	}
	name := words[0]
	for i := range entryForms {
		f := &entryForms[i]
		if len(f.name) != len(name) || string(name) != f.name && !command.FoldEqual(name, f.name) {
			continue // most clients write names in upper case, which is compared in a third of the time
		}
		if n := f.words; len(words) > n {
			e = entry{form: f, words: n}
			if isForce(words[n]) && f.kind != store.Lease && f.kind != store.None {
				e.words, e.forced = n+1, true
			}
		} else if len(words) == n {
			e = entry{form: f, words: n}
		}
		return e
	}
	return e
}

// isForce reports whether a word is FORCE. The second letter is compared first, because the name of
// another limiter may have five letters too.
func isForce(word []byte) bool {
	return len(word) == len("FORCE") && word[1]|0x20 == 'o' && command.FoldEqual(word, "FORCE")
}

// allOptions are the options after the limiters.
type allOptions struct {
	peek, ms bool
	verbose  bool  // what is said of policies
	wait     int64 // ms
	err      error // of a number
	first    int   // index of the first option in the words of the call
	// waitAt and idAt are the positions of the words after WAIT and ID among those of the options, from 1;
	// 0 if missing.
	waitAt, idAt int
	call         *command.LimitCall // of another family, which has the places of these words; nil for CL.ALL
}

// allOptionsOf parses the options: PEEK, MS, VERBOSE, WAIT and ID, in any order, each at most once. If other
// words are among them, it returns only a syntax error.
func allOptionsOf(words [][]byte) (o allOptions, ok bool) {
	for i := 0; i < len(words); i++ {
		switch word := words[i]; {
		case command.FoldEqual(word, "PEEK") && !o.peek:
			o.peek = true
		case command.FoldEqual(word, "MS") && !o.ms:
			o.ms = true
		case command.FoldEqual(word, "VERBOSE") && !o.verbose:
			o.verbose = true
		case command.FoldEqual(word, "WAIT") && o.waitAt == 0 && i+1 < len(words):
			i++
			o.waitAt = i + 1
			o.wait, o.err = command.WaitArg.Number(words[i])
		case command.FoldEqual(word, command.IDOption) && o.idAt == 0 && i+1 < len(words):
			i++
			o.idAt = i + 1
		default:
			return allOptions{err: command.ErrSyntaxAt(word)}, false
		}
	}
	return o, true
}

// fewRequests is the number of limiters for which a session keeps memory between calls. It is
// small, because there may be many idle sessions.
const fewRequests = 8

// requests parses count limiters, and returns them and the words after them. If there are fewer, it
// returns a syntax error. Up to fewRequests are in memory of the call, and valid until the next
// one.
func (l *Family) requests(c *command.Call, words [][]byte,
	count int) (takes []store.LimitRequest, rest [][]byte, err error) {
	switch {
	case count > fewRequests:
		takes = make([]store.LimitRequest, count)
	case c.Requests == nil:
		c.Requests = make([]store.LimitRequest, fewRequests)
		fallthrough
	default:
		takes = c.Requests[:count]
	}
	for i := range takes {
		e := entryOf(words)
		switch {
		case e.form == nil:
			return takes, nil, errNoLimiter(i, words)
		case e.form.kind == store.None:
			return takes, nil, errNamesPolicy
		case err != nil:
		case e.form.kind == store.Lease:
			err = ofLimiter(i, l.leaseRequest(c, takes, i, words[1:e.form.words]))
		default:
			err = ofLimiter(i, l.request(c, &takes[i], e, words[1:e.form.words]))
		}
		words = words[e.words:]
	}
	return takes, words, err
}

// forgetRequests clears requests, because they refer to borrowed keys and holders.
func forgetRequests(c *command.Call, takes []store.LimitRequest) {
	clear(takes)
	if c.LeaseRequests != nil {
		clear(c.LeaseRequests)
	}
}

// request reads the key and the numbers of one limiter.
func (l *Family) request(c *command.Call, t *store.LimitRequest, e entry, words [][]byte) (err error) {
	t.Key, t.Rule.Kind = words[0], e.form.kind
	if err := c.CheckKey(t.Key); err != nil {
		return err
	}
	if e.forced {
		t.Mode = quota.Force
	}
	if e.form.kind == store.Quota {
		return quotaRequest(t, words)
	}
	var numbers [4]int64
	for i, word := range words[1:] {
		n, ok := command.ParseInteger(word, true)
		if i == len(words)-3 {
			n, ok = periodNumber(word, n, ok)
		}
		if !ok {
			return errNoNumber(numberName(e.form.kind, i), word)
		}
		numbers[i] = n
	}
	t.Quantity = numbers[len(words)-2]
	period := quota.Period(numbers[len(words)-3])
	switch e.form.kind {
	case store.Throttle:
		t.Rule.Throttle, err = gcra.NewLimit(numbers[0], numbers[1], period)
	case store.SlidingLog:
		t.Rule.Log, err = window.NewLogLimit(numbers[0], period, l.maxLogLimit)
	default:
		t.Rule.Window, err = window.NewLimit(numbers[0], period)
	}
	return err
}

// leaseRequest reads the i-th entry of a call, which is ACQUIRE.
func (l *Family) leaseRequest(c *command.Call, takes []store.LimitRequest, i int, words [][]byte) error {
	t, holder := &takes[i], words[3]
	t.Key, t.Rule.Kind = words[0], store.Lease
	if err := c.CheckKey(t.Key); err != nil {
		return err
	}
	c.Work += leaseChangeWork
	limit, err := integerBeforeOption("limit", words[1])
	if err != nil {
		return err
	}
	ttl, err := periodBeforeOption("ttl", words[2])
	if err != nil {
		return err
	}
	quantity, err := integerBeforeOption("quantity", words[4])
	if err != nil {
		return err
	}
	if len(takes) > fewRequests {
		t.Lease = new(store.LeaseRequest)
	} else {
		if c.LeaseRequests == nil {
			c.LeaseRequests = make([]store.LeaseRequest, fewRequests)
		}
		t.Lease = &c.LeaseRequests[i]
	}
	t.Lease.MaxHolders = l.maxHolders
	t.Lease.Request, err = lease.NewRequest(limit, quota.Period(ttl), holder, quantity)
	return err
}

// periodNumber returns the number of a quota.Period for a word, which is the integer n if isInteger is set. It
// returns 0, which is no period, for an integer that is not positive.
func periodNumber(word []byte, n int64, isInteger bool) (period int64, ok bool) {
	if isInteger {
		return int64(quota.Seconds(n)), true
	}
	p, ok := quota.ParsePeriod(word)
	return int64(p), ok
}

// periodBeforeOption is integerBeforeOption for a period.
func periodBeforeOption(name string, word []byte) (period int64, err error) {
	n, ok := command.ParseInteger(word, true)
	if period, ok = periodNumber(word, n, ok); ok {
		return period, nil
	}
	return 0, errNoNumber(name, word)
}

// isOption reports whether a word is an option of any limiter. CL.ALL has only some of these
// options.
func isOption(word []byte) bool {
	return command.FoldEqual(word, "PEEK") || command.FoldEqual(word, "MS") || command.FoldEqual(word, "UPTO") ||
		command.FoldEqual(word, "FORCE") || command.FoldEqual(word, "WAIT") || command.FoldEqual(word, "VERBOSE") ||
		command.FoldEqual(word, command.IDOption)
}

// keySeed is the seed of the hashes that repeatsKey compares.
var keySeed = maphash.MakeSeed()

// repeatsKey reports whether two limiters have the same key. It compares the keys of a few limiters
// with one another. Of many it compares hashes, because keys may be long and differ only at their
// ends.
func repeatsKey(takes []store.LimitRequest) bool {
	if len(takes) > fewRequests {
		indexes := make(map[uint64]int, len(takes))
		for i := range takes {
			hash := maphash.Bytes(keySeed, takes[i].Key)
			if other, ok := indexes[hash]; ok && bytes.Equal(takes[i].Key, takes[other].Key) {
				return true
			}
			indexes[hash] = i
		}
		return false
	}
	for i := range takes {
		for j := range i {
			if bytes.Equal(takes[i].Key, takes[j].Key) {
				return true
			}
		}
	}
	return false
}

// limiterKeys is the KeyRules.Find of CL.ALL.
func limiterKeys(keys, words [][]byte) (all [][]byte, ok bool) {
	count, ok := command.ParseInteger(words[1], true)
	if !ok || count < 1 || count > maxRequests {
		return keys, false
	}
	words = words[2:]
	for range count {
		e := entryOf(words)
		if e.form == nil {
			return keys, false
		}
		keys, words = append(keys, words[1]), words[e.words:]
	}
	return keys, true
}

// writeAllDecisions writes the reply of CL.ALL. If it is allowed, only forced quantities are beyond their
// limits.
func writeAllDecisions(c *command.Call, decisions []quota.Decision, allowed, ms bool) {
	limited, retry := int64(0), int64(quota.Never)
	if !allowed {
		limited, retry = 1, longestRetry(decisions)
	}
	c.Limited += limited // they count as one decision
	c.Out.Array(2 + len(decisions))
	c.Out.Int(limited)
	c.Out.Int(command.WholeUnits(retry, ms))
	for i := range decisions {
		writeDecision(c, &decisions[i], quota.Take, ms)
	}
}

// longestRetry returns the time until all limited decisions would allow their quantity, or Never.
func longestRetry(decisions []quota.Decision) (retry int64) {
	for i := range decisions {
		if d := &decisions[i]; d.Limited && d.RetryAfter == quota.Never {
			return quota.Never
		} else if d.Limited {
			retry = max(retry, d.RetryAfter)
		}
	}
	return retry
}
