package simulation

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"

	"cellserver/internal/store/remote/ahead"
	"cellserver/internal/store/remote/combine"
)

// oracle checks the replies to callers against the servers' actions. Every value that a step makes
// is a version, which says which step has made it, and from which version. So a server's value
// tells which steps have been made, and in which order. The oracle checks that
//
//   - a step that has succeeded is in the values of all its keys, unless a failover forgot it;
//   - no step is in a value twice, and none that ended with "nothing was changed" is in one at all;
//   - a write continues the value that the key held;
//   - a step that changed nothing has seen a value that the key held during the call, or, if a limit
//     has denied it, so long before as the plan allows;
//   - a limit admits no more than it promises by the clocks of the servers; a step does not count as admitted if a
//     server makes it after its caller was told that the store is unavailable, as a stalled server does;
//   - each step ends exactly once, and by its deadline;
//   - calls that processes admit with tokens taken ahead are within the limit too;
//   - a charge is made once and corrected once, however often its client repeats these steps;
//   - after a correction, a bucket holds at least what it would if the used quantity had been charged at first.
type oracle struct {
	w        *world
	steps    []*step
	versions []*version
	same     map[derived]*version
	keys     map[string]*keyState
	spent    []int64 // when tokens of aheadKey were spent, from blocks or by steps
	charges  []*charge
	heads    map[string]*charge
}

// derived says from what a version is made. Two versions made from the same are the same version: a process computes
// again what a server has made.
type derived struct {
	parent *version
	step   *step
	key    string
	tat    int64
}

// version is a value that a step has computed.
type version struct {
	bytes   []byte
	parent  *version // nil if the key did not exist
	step    *step
	tat     int64    // of a limit
	stage   stage    // of a charge
	account *account // of a book
	late    bool     // the step had ended as unsure before: its caller was told nothing
	from    int64    // when a server first held it, or got it as a part of a request
	to      int64    // the last time at which a server held it
}

// step is what the oracle knows of a step.
type step struct {
	number    uint64
	process   int
	kind      string
	keys      []string
	submitted int64
	deadline  int64
	ended     bool
	err       error
	changes   bool // the last run changed the keys
	seen      []*version
	applied   map[string]int
	forgotten bool
	committed int64
	extra     ahead.Extra
	taken     int64 // how many tokens the last run has taken ahead
	tat       int64 // the TAT after the last run
	now       int64 // the time of the last run, by the server's clock
}

// isDeniable reports whether a value that was read before the step may deny it.
func (s *step) isDeniable() bool {
	return (s.kind == "change" || s.kind == "call" || s.kind == "ahead") && len(s.keys) == 1 && isLimit(s.keys[0])
}

// keyState is what the oracle knows of a key.
type keyState struct {
	present     bool
	absentUntil int64 // the last time at which it did not exist
	admitted    int64
	began       int64 // when a step of the first write on a limit was submitted, true time
	offset      int64 // the clock offset of the server that held the key last
	jumps       int64 // the sum of all changes of that offset
}

// emission is the emission interval of the limits.
const emission = 5 * ms

func newOracle(w *world) *oracle {
	return &oracle{w: w, keys: map[string]*keyState{}, same: map[derived]*version{}, heads: map[string]*charge{}}
}

// isLimit says which keys are limits; the others are lists of steps.
func isLimit(key string) bool { return (key[len(key)-1]-'0')%2 == 0 }

// isShort reports whether a key is a list with a short expiry.
func isShort(key string) bool { return key[len(key)-1] == '1' }

func slotOf(key string) int {
	number, _, _ := strings.Cut(key, ":")
	n, _ := strconv.Atoi(number)
	return n
}

func stepNumber(b []byte) uint64 { return binary.BigEndian.Uint64(b) }

func (o *oracle) newStep(p *process, kind string, keys []string) *step {
	s := &step{number: uint64(len(o.steps)), process: p.number, kind: kind, keys: keys, submitted: o.w.now,
		deadline: o.w.now + o.w.plan.Timeout, applied: map[string]int{}}
	o.steps = append(o.steps, s)
	return s
}

func (o *oracle) newVersion(parent *version, s *step, key string, tat int64) *version {
	made := derived{parent, s, key, tat}
	if v := o.same[made]; v != nil {
		return v
	}
	v := &version{parent: parent, step: s, tat: tat}
	o.same[made] = v
	v.bytes = binary.BigEndian.AppendUint64(nil, uint64(len(o.versions)))
	v.bytes = append(v.bytes, key...)
	o.versions = append(o.versions, v)
	return v
}

func (o *oracle) lookup(value []byte) *version {
	if value == nil {
		return nil
	}
	return o.versions[binary.BigEndian.Uint64(value)]
}

func (o *oracle) key(name string) *keyState {
	k := o.keys[name]
	if k == nil {
		k = &keyState{absentUntil: o.w.now}
		o.keys[name] = k
	}
	return k
}

// committed is called when a server replaces a key's version by another.
func (o *oracle) committed(n *node, key string, old, after *version) {
	w := o.w
	if after == nil || string(after.bytes[8:]) != key {
		w.violation("%s: holds a value of another key", key)
		return
	}
	began := w.now
	for v := after; v != old; v = v.parent {
		if v == nil {
			w.violation("%s: a write does not continue what the key held", key)
			return
		}
		o.applied(n, key, v)
		began = min(began, v.step.submitted)
	}
	after.to = combine.Never
	if old != nil {
		old.to = w.now
	}
	k := o.key(key)
	if !k.present && !n.deposed {
		k.present, k.absentUntil = true, w.now
	}
	if isLimit(key) && !n.deposed {
		o.checkLimit(n, key, k, began)
	}
}

// applied is called for each version of a write.
func (o *oracle) applied(n *node, key string, v *version) {
	w, s := o.w, v.step
	if v.from == 0 {
		v.from = w.now
	}
	v.to = w.now
	s.committed = w.now
	if s.applied[key]++; s.applied[key] > 1 {
		w.violation("%s: step %d (%s) was made twice", key, s.number, s.kind)
	}
	if s.ended && s.err != nil && !errors.Is(s.err, combine.ErrUnavailable) {
		w.violation("%s: step %d (%s) was made after it had ended: %v", key, s.number, s.kind, s.err)
	}
	if n.deposed {
		s.applied[key]--
		s.forgotten = true
		o.lost(key)
		return
	}
	if v.late = s.ended && s.err != nil; !v.late {
		o.key(key).admitted++
	}
	o.reached(key, v)
}

// forgotten is called when a failover loses a write.
func (o *oracle) forgotten(key string, before *record, after *version) {
	var old *version
	if before != nil {
		old = before.version
	}
	k := o.key(key)
	for v := after; v != old; v = v.parent {
		v.step.applied[key]--
		v.step.forgotten = true
		if !v.late {
			k.admitted--
		}
		o.unreached(key, v)
	}
	after.to = o.w.now
	if old != nil {
		old.to = combine.Never
	} else {
		k.present, k.absentUntil = false, combine.Never
	}
}

// expired is called when a server finds that a key has expired.
func (o *oracle) expired(key string, v *version) {
	v.to = o.w.now
	k := o.key(key)
	k.present, k.absentUntil = false, combine.Never
}

// checkLimit compares how much a limit has admitted with its promise: the burst, and the rate times the time. If a
// server's clock jumps, or a server with another clock takes over, the limit moves with the clock. A process may be
// wrong about that clock by half a round trip, and after a jump also by the jump, until it measures the clock
// again. The time counts from began of the first write: a step takes at the time at which it was submitted, and its
// write may arrive much later.
func (o *oracle) checkLimit(n *node, key string, k *keyState, began int64) {
	w := o.w
	if k.began == 0 {
		k.began, k.offset = began, n.offset
	}
	k.jumps += max(n.offset-k.offset, k.offset-n.offset)
	k.offset = n.offset
	wrong := 2*(w.plan.Delay+w.plan.Jitter) + w.plan.Wrong
	if w.plan.Jump > 0 {
		wrong += w.plan.JumpSize
	}
	most := w.plan.burst() + (w.now-k.began+k.jumps+2*wrong)/emission + 1
	if k.admitted > most {
		w.violation("%s: %d admitted, %d promised", key, k.admitted, most)
	}
}

// resolution is how late a step may end, which is a tick of the machine.
const resolution = 3 * ms

// end is called when a step ends.
func (o *oracle) end(s *step, err error) {
	w := o.w
	if s.ended {
		w.violation("step %d (%s) ended twice", s.number, s.kind)
	}
	s.ended, s.err = true, err
	if w.now > s.deadline+resolution {
		w.violation("step %d (%s) ended %d us after its deadline", s.number, s.kind, (w.now-s.deadline)/us)
	}
	switch {
	case err == nil && s.changes:
		o.checkMade(s)
	case err == nil:
		o.checkSeen(s)
		o.checkNotMade(s)
	case !errors.Is(err, combine.ErrUnavailable):
		o.checkNotMade(s)
	}
	o.count(s)
	s.seen = nil
}

func (o *oracle) checkNotMade(s *step) {
	for key, times := range s.applied {
		if times > 0 {
			o.w.violation("%s: step %d (%s) was made and ended with %v", key, s.number, s.kind, s.err)
		}
	}
}

func (o *oracle) checkMade(s *step) {
	for _, key := range s.keys {
		if s.applied[key] != 1 && !s.forgotten {
			o.w.violation("%s: step %d (%s) succeeded and was made %d times", key, s.number, s.kind, s.applied[key])
		}
	}
}

// checkSeen checks the values that a step has seen: its keys must have held them all during the call,
// or not long before.
func (o *oracle) checkSeen(s *step) {
	since := s.submitted
	if s.isDeniable() {
		since -= o.w.plan.DenialAge
	}
	for i, v := range s.seen {
		if v == nil {
			if k := o.key(s.keys[i]); k.present && k.absentUntil < s.submitted && o.w.plan.Split == 0 {
				o.w.violation("%s: step %d (%s) saw no key, which was there", s.keys[i], s.number, s.kind)
			}
			continue
		}
		if v.from == 0 || v.to < since && o.w.plan.Split == 0 {
			o.w.violation("%s: step %d (%s) saw a value that the key did not hold then", s.keys[i], s.number, s.kind)
		}
	}
}

func (o *oracle) count(s *step) {
	w, name := o.w, "ok"
	switch {
	case errors.Is(s.err, combine.ErrUnavailable):
		name = "unsure"
	case errors.Is(s.err, combine.ErrDown):
		name = "down"
	case errors.Is(s.err, combine.ErrContended):
		name = "contended"
	case errors.Is(s.err, combine.ErrConflict):
		name = "conflict"
	case s.err != nil:
		name = "refused"
	default:
		w.result.Shares[s.process]++
		if s.changes {
			w.result.Taken[s.process]++
		}
		if w.plan.KeepDurations {
			w.result.Durations[s.process] = append(w.result.Durations[s.process], w.now-s.submitted)
		}
	}
	w.result.Ended[name]++
	if w.calm && s.submitted >= w.calmAt && s.err != nil && !errors.Is(s.err, combine.ErrConflict) {
		w.violation("step %d (%s) failed without a fault: %v", s.number, s.kind, s.err)
	}
}

// atEnd checks that nothing is left.
func (o *oracle) atEnd() {
	o.checkSpent()
	o.checkCharges()
	for _, s := range o.steps {
		if !s.ended {
			o.w.violation("step %d (%s) has not ended", s.number, s.kind)
		}
	}
	for _, p := range o.w.processes {
		c := p.machine.Counters()
		if c.Waiting != 0 || c.Queues != 0 {
			o.w.violation("process %d: %d steps wait, %d queues are left", p.number, c.Waiting, c.Queues)
		}
	}
}
