package limiter

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"iter"
	"slices"
	"strings"

	"cellserver/internal/command"
	"cellserver/internal/decide"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// entryForm is the form of an entry: one of the limiters of a call.
type entryForm struct {
	name      string
	kind      limit.Kind
	words     int    // with the name, the key and the quantity
	arguments string // the names of the others, for errors
}

var entryForms = func() []entryForm {
	forms := []entryForm{{"THROTTLE", limit.Throttle, 6, "key max_burst count_per_period period quantity"}}
	for _, w := range windows {
		forms = append(forms, entryForm{entryName(w.kind), w.kind, 5, "key limit period quantity"})
	}
	return append(forms,
		entryForm{"QUOTA", limit.Quota, 5, "key limit unit quantity"},
		entryForm{"ACQUIRE", limit.Lease, 6, "key limit ttl holder quantity"},
		entryForm{"TAKE", limit.None, 4, "subject policy quantity"}) // a policy for a subject
}()

func entryName(kind limit.Kind) string { return strings.ToUpper(kind.Word()) }

// entry is one of the limiters of a call.
type entry struct {
	form   *entryForm
	words  int // with FORCE
	forced bool
}

// entryOf returns the entry at the beginning of the words. Its form is nil if they do not begin with a whole entry.
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
			if isForce(words[n]) && f.kind != limit.Lease && f.kind != limit.None {
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

// allCall is a call of CL.ALL.
type allCall struct {
	requests []store.LimitRequest // of the members; a policy has only a subject and a quantity
	policies []namedPolicy        // in the order of the members
	decide.Options
	mode        quota.Mode // Take or Peek
	ms, verbose bool       // verbose is about policies
}

// namedPolicy is the name of the policy of a member.
type namedPolicy struct {
	member int // index among the members
	name   []byte
}

// allMemory is the memory that a session keeps between calls, with the latest call. A call that repeats it has the same
// words, except for its keys.
type allMemory struct {
	allCall
	repeatable bool // the call was valid, and has no leases, no policies and no options of package decide
	memory     [fewRequests]store.LimitRequest
	leases     []store.LeaseRequest
	keysAt     [fewRequests]int // indexes of the keys in the words
}

// fewRequests is the number of limiters for which a session keeps memory between calls. It is
// small, because there may be many idle sessions.
const fewRequests = 8

// parseAll returns the call that the words ask for. It is in memory of the session, and valid until the next call.
func (l *Family) parseAll(c *command.Call) (*allMemory, error) {
	k, ok := c.All.(*allMemory)
	if !ok {
		k = new(allMemory)
		c.All = k
	}
	if c.Repeats() && k.repeatable {
		return k, k.setKeys(c)
	}
	if k.allCall = (allCall{}); c.Int() > fewRequests {
		k.requests = make([]store.LimitRequest, c.Bound[0].N)
	} else {
		k.requests = k.memory[:c.Bound[0].N]
		clear(k.requests)
	}
	err := l.parseMembers(c, k)
	k.repeatable = err == nil && k.policies == nil && c.Extras == 0 && len(k.requests) <= fewRequests &&
		!slices.ContainsFunc(k.requests, func(r store.LimitRequest) bool { return r.Lease != nil })
	return k, err
}

// setKeys sets the keys of a call that repeats the one before.
func (k *allMemory) setKeys(c *command.Call) error {
	for i := range k.requests {
		key := c.Words[k.keysAt[i]]
		if err := c.CheckKey(key); err != nil {
			return err
		}
		k.requests[i].Key = key
	}
	return nil
}

// forget clears the references to the words of a call, which are borrowed.
func (k *allMemory) forget() {
	if !k.repeatable {
		clear(k.requests)
		clear(k.leases)
		k.policies = nil
		return
	}
	for i := range k.requests {
		k.requests[i].Key = nil
	}
}

// parseMembers parses the members of a call, and the options after them.
func (l *Family) parseMembers(c *command.Call, k *allMemory) (err error) {
	at := 2
	for i := range k.requests {
		words := c.Words[at:]
		e := entryOf(words)
		if e.form == nil {
			return cmp.Or(err, errNoLimiter(i, words)) // the first word that is wrong may be an earlier one
		}
		if i < fewRequests {
			k.keysAt[i] = at + 1
		}
		if err == nil {
			err = ofLimiter(i, l.parseMember(c, k, i, e, words[1:e.form.words]))
		}
		at += e.words
	}
	return cmp.Or(err, k.parseOptions(c, at))
}

// parseOptions parses the options of a call, which begin at an index of its words.
func (k *allMemory) parseOptions(c *command.Call, at int) (err error) {
	if err := c.BindOptions(at); err != nil {
		return err
	}
	if k.mode = quota.Take; c.HasOption("PEEK") {
		k.mode = quota.Peek
	}
	k.ms, k.verbose = c.HasOption("MS"), c.HasOption("VERBOSE")
	if c.Extras > 0 {
		if k.Options, err = decide.OptionsOf(c, k.mode, k.heldQuantity(), true); err == nil {
			err = k.checkHolds()
		}
	}
	return err
}

// heldQuantity returns the smallest quantity that HOLD and SETTLE are about. Leases are not held.
func (k *allMemory) heldQuantity() (smallest int64) {
	found := false
	for i := range k.requests {
		if r := &k.requests[i]; r.Lease == nil && (!found || r.Quantity < smallest) {
			smallest, found = r.Quantity, true
		}
	}
	return smallest
}

// checkHolds refuses members that HOLD or SETTLE excludes: FORCE for HOLD, leases for SETTLE.
func (k *allMemory) checkHolds() error {
	for i := range k.requests {
		switch r := &k.requests[i]; {
		case k.HoldAt > 0 && r.Mode == quota.Force:
			return command.ErrSyntaxAt([]byte("FORCE"))
		case k.SettleAt > 0 && r.Lease != nil:
			return command.ErrSyntaxAt([]byte("ACQUIRE"))
		}
	}
	return nil
}

// parseMember parses the i-th member of a call, without its name.
func (l *Family) parseMember(c *command.Call, k *allMemory, i int, e entry, words [][]byte) (err error) {
	r := &k.requests[i]
	r.Key = words[0]
	if err := c.CheckKey(r.Key); err != nil {
		return err
	}
	switch e.form.kind {
	case limit.None:
		c.Work += l.Policies.MemberWork(snapshotOf(c), words[0], words[1], false) // showing it adds its work later
		k.policies = append(k.policies, namedPolicy{i, words[1]})
		r.Quantity, err = integerBeforeOption("quantity", words[2])
		return err
	case limit.Lease:
		return l.leaseRequest(c, k, i, words)
	default:
		return l.request(r, e, words)
	}
}

// request reads the numbers of one limiter.
func (l *Family) request(t *store.LimitRequest, e entry, words [][]byte) (err error) {
	if t.Rule.Kind = e.form.kind; e.forced {
		t.Mode = quota.Force
	}
	if e.form.kind == limit.Quota {
		return quotaRequest(t, words)
	}
	var numbers [4]int64
	for i, word := range words[1:] {
		n, ok := command.ParseInteger(word, true)
		if i == len(words)-3 {
			n, ok = periodNumber(word, n, ok)
		}
		if !ok {
			return errNoNumber(e.form.argument(i+2), word)
		}
		numbers[i] = n
	}
	t.Quantity = numbers[len(words)-2]
	period := quota.Period(numbers[len(words)-3])
	if e.form.kind == limit.Throttle {
		t.Rule.Throttle, err = gcra.NewLimit(numbers[0], numbers[1], period)
		return err
	}
	return t.Rule.SetWindow(e.form.kind, numbers[0], period, l.maxLogLimit)
}

// leaseRequest reads the i-th entry of a call, which is ACQUIRE.
func (l *Family) leaseRequest(c *command.Call, k *allMemory, i int, words [][]byte) error {
	t, holder := &k.requests[i], words[3]
	t.Rule.Kind = limit.Lease
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
	if len(k.requests) > fewRequests {
		t.Lease = new(store.LeaseRequest)
	} else {
		if k.leases == nil {
			k.leases = make([]store.LeaseRequest, fewRequests)
		}
		t.Lease = &k.leases[i]
	}
	t.Lease.MaxHolders = l.maxHolders
	t.Lease.Request, err = lease.NewRequest(limit, quota.Period(ttl), holder, quantity)
	return err
}

// periodNumber returns the number of a quota.Period for a word. If isInteger is set, the word is the integer n. An
// integer that is not positive gives 0, which is no period.
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

// isOption reports whether a word begins an option of any limiter. CL.ALL has only some of these options.
func isOption(word []byte) bool {
	options := append(decide.Args(leaveArg), decide.ModeArg, msArg, verboseArg)
	return slices.ContainsFunc(options, func(a command.Arg) bool {
		return slices.ContainsFunc(a.Tokens, func(token string) bool { return command.FoldEqual(word, token) })
	})
}

// keySeed is the seed of the hashes that repeatsKey compares.
var keySeed = maphash.MakeSeed()

// repeatsKey reports whether two limiters have the same key. It compares the keys of a few limiters
// with one another. If there are many, it compares hashes, because keys may be long and differ only
// at their ends.
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

// membersOf iterates over the members of a call, with the index in the words of the name of each. It ends with a member
// without a form if the count is wrong or a member is not whole.
func membersOf(words [][]byte) iter.Seq2[int, entry] {
	return func(yield func(int, entry) bool) {
		count, ok := command.ParseInteger(words[1], true)
		if !ok || count < 1 || count > decide.MaxRequests {
			yield(2, entry{})
			return
		}
		for at := 2; count > 0; count-- {
			e := entryOf(words[at:])
			if !yield(at, e) || e.form == nil {
				return
			}
			at += e.words
		}
	}
}

// limiterKeys is the KeyRules.Find of CL.ALL.
func limiterKeys(keys []int, words [][]byte) (all []int, ok bool) {
	for i, e := range membersOf(words) {
		if e.form == nil {
			return keys, false
		}
		keys = append(keys, i+1)
	}
	return keys, true
}
