package limiter

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"iter"
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/decide"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// entryForm is the form of an entry: one of the limiters of a call.
type entryForm struct {
	name      string
	kind      limit.Kind
	words     int    // with the name, the key and the quantity
	arguments string // the names of the others, for errors
}

var entryForms = [...]entryForm{
	{"THROTTLE", limit.Throttle, 6, "key max_burst count_per_period period quantity"},
	{"FIXED", limit.Fixed, 5, "key limit period quantity"},
	{"SLIDING", limit.Sliding, 5, "key limit period quantity"},
	{"SLIDINGLOG", limit.SlidingLog, 5, "key limit period quantity"},
	{"QUOTA", limit.Quota, 5, "key limit unit quantity"},
	{"ACQUIRE", limit.Lease, 6, "key limit ttl holder quantity"},
	{"TAKE", limit.None, 4, "subject policy quantity"}, // a policy for a subject
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

// allOptions are the options after the limiters.
type allOptions struct {
	decide.Options
	peek, ms, verbose bool // verbose is about policies
}

// allOptionsOf parses the options of a call, which begin at an index of its words: PEEK, MS, VERBOSE, WAIT and
// ID, in any order, each at most once. If other words are among them, ok is false. The error may also be about a
// number.
func allOptionsOf(words [][]byte, at int) (o allOptions, ok bool, err error) {
	for i := at; i < len(words); i++ {
		switch word := words[i]; {
		case command.FoldEqual(word, "PEEK") && !o.peek:
			o.peek = true
		case command.FoldEqual(word, "MS") && !o.ms:
			o.ms = true
		case command.FoldEqual(word, "VERBOSE") && !o.verbose:
			o.verbose = true
		case command.FoldEqual(word, "WAIT") && o.WaitAt == 0 && i+1 < len(words):
			i++
			o.WaitAt = i
			o.Wait, err = command.WaitArg.Number(words[i])
		case command.FoldEqual(word, command.IDOption) && o.IDAt == 0 && i+1 < len(words):
			i++
			o.IDAt = i
		default:
			return allOptions{}, false, command.ErrSyntaxAt(word)
		}
	}
	return o, true, err
}

// allCall is a call of CL.ALL.
type allCall struct {
	requests []store.LimitRequest // of the members; a policy has only a subject and a quantity
	policies []namedPolicy        // in the order of the members
	allOptions
}

// namedPolicy is the name of the policy of a member.
type namedPolicy struct {
	member int // index
	name   []byte
}

// allMemory is the memory that a session keeps between calls, with the latest call: one that repeats it has the same
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

// parseAll returns the call that the words ask for. It is in memory of the session, and valid until the next one.
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
	k.repeatable = err == nil && k.policies == nil && k.Options == decide.Options{} && len(k.requests) <= fewRequests &&
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

// forget forgets what the words lend to a call.
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
	var wrong error
	k.allOptions, _, wrong = allOptionsOf(c.Words, at)
	return cmp.Or(err, wrong)
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
		c.Work += l.Policies.MemberWork(snapshotOf(c), words[0], words[1], false) // showing it is counted later
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
	switch e.form.kind {
	case limit.Throttle:
		t.Rule.Throttle, err = gcra.NewLimit(numbers[0], numbers[1], period)
	case limit.SlidingLog:
		t.Rule.Log, err = window.NewLogLimit(numbers[0], period, l.maxLogLimit)
	default:
		t.Rule.Window, err = window.NewLimit(numbers[0], period)
	}
	return err
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
		command.FoldEqual(word, command.IDOption) || command.FoldEqual(word, "LEAVE") || command.FoldEqual(word, "HOLD") ||
		command.FoldEqual(word, "SETTLE")
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

// membersOf iterates over the members of a call, with the index of the name of each in the words. It ends with a member
// without a form if the words are not a whole one, or their count is wrong.
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
