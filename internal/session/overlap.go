package session

import (
	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/commands/connection"
	"cellserver/internal/store"
)

// Over a store whose calls may block, such as one in another process, calls of a client overlap: while
// one waits for the store, the session begins the next, so that a pipeline of a client becomes a
// pipeline of the store. Each call has its own command.Call, with its own view and output, and runs in
// a coroutine (coroutine.go) until it waits or ends. Replies are sent in the order of the calls.
//
// Calls overlap only if command.Command.Overlaps allows it. Any other call, EXEC, and every call of a
// client with CLIENT TRACKING begins when all calls before it have ended, and the next call begins when
// it has ended. If a call may use the store several times, a later call on one of its keys begins when it
// has ended. At the end of a turn, all calls have ended.

// maxOverlap bounds how many calls of a session are under way at a time.
const maxOverlap = 64

// maxOverlapBytes bounds the words, in bytes, of a call that overlaps, because they are copied.
const maxOverlapBytes = 16 << 10

// maxOverlapValues bounds how many calls that read a value of any length are under way at a time. These
// values are in memory together, and nothing else bounds them: the length of a value is not known
// before it is read. In memory, a turn ends with the first long reply.
const maxOverlapValues = 4

// overlap holds the calls of a session that are under way. The session's goroutine waits for them, so
// its transport must not be an event loop.
type overlap struct {
	session *Session
	begun   [maxOverlap]*coroutine // a ring, in the order of the calls
	first   int                    // index of the first call
	count   int                    // of calls
	keyed   int                    // number of these calls that have keys: see coroutine.keys
	values  int                    // number of these calls that read a value of any length
	keys    [][]byte               // memory for the keys of the next call
	unused  []*coroutine           // coroutines whose calls have ended, kept until the end of the turn
	work    int                    // of the calls of this turn
}

// beginOverlapping is called when the instance begins.
func (in *Instance) beginOverlapping() {
	_, suspends := in.Store.View().(store.Suspender)
	_, in.coroutines.announces = in.Store.(store.Notifier)
	in.Hooks.Set(command.StoreBlocks, in.Store.MayBlock() && suspends)
}

// beginOverlapping is called when the session begins. It returns p with a Cut that also cancels calls waiting for
// the store.
func (s *Session) beginOverlapping(p client.Peer) client.Peer {
	if !s.instance.Hooks.Has(command.StoreBlocks) {
		return p
	}
	s.overlap = &overlap{session: s}
	s.instance.coroutines.addUser()
	cut := p.Cut
	p.Cut = func() {
		s.cancel()
		cut()
	}
	return p
}

// endOverlapping is called when the session ends, after its context has ended, so no call waits for
// long.
func (s *Session) endOverlapping() {
	if s.overlap != nil {
		s.CloseAfterReply()
		s.overlap.completeAll()
		s.overlap.releaseCoroutines()
		s.instance.hideTurnCall(s)
		s.instance.coroutines.removeUser()
	}
}

// answerOverlapping makes the next calls as long as they may overlap and cost less than left, until all
// have ended. It returns how many it has made. Then s.words and s.call.Work stand for all of them.
func (s *Session) answerOverlapping(left int) (answered int64) {
	o := s.overlap
	if o == nil {
		return 0
	}
	s.since = store.Never // each of these calls has a time of its own
	for o.work = 0; s.ending == stays && o.work < left && s.out.Len() < command.TurnOutput; answered++ {
		if s.ahead.empty() {
			bytes, some := s.readAhead()
			if o.work += bytes; !some {
				break
			}
		}
		if answered > 0 && s.instance.Hooks.Has(command.Paused) || !o.beginNext() {
			break
		}
		o.work += s.turnCost()
	}
	o.completeAll()
	o.releaseCoroutines()
	s.since = s.instance.Clock.Now()
	if answered > 0 {
		s.words, s.call.Work = 0, o.work
	}
	return answered
}

// beginNext begins the next call if it overlaps, otherwise it does nothing and returns false. If the
// call is refused, the refusal takes its place in the order of the replies.
func (o *overlap) beginNext() bool {
	s := o.session
	call, words := s.ahead.take()
	row := call.row.Subcommand(words)
	if s.ahead.longCall() != nil || row == nil || !row.Grammar.Fits(len(words)) || !o.overlaps(row, words) {
		s.ahead.putBack()
		return false
	}
	o.waitForKeys(row, words)
	sized := row.IsValueSized(words)
	for sized && o.values == maxOverlapValues {
		o.completeFirst()
	}
	s.words, s.call.Work = len(words), 0
	err := s.admit(row, words, nil)
	c := o.takeCoroutine()
	o.append(c)
	if err != nil {
		s.rejected = false
		c.refuse(err)
		return true
	}
	s.count(row)
	if c.begin(s, row, words); len(c.keys) > 0 {
		o.keyed++
	}
	if c.sized = sized; sized {
		o.values++
	}
	o.chargeFor(c)
	o.resume(c)
	return true
}

// overlaps reports whether a call may be made while others are under way.
func (o *overlap) overlaps(row *command.Command, words [][]byte) bool {
	s := o.session
	return row.Overlaps() && s.transaction.Queue == nil && s.call.Middleware == nil &&
		(s.replyMode == connection.RepliesOn || s.replyMode == connection.RepliesOff) &&
		(!s.IsSubscribed() || s.out.Protocol() != 2) &&
		!s.instance.Hooks.Has(command.Notifying) && command.TotalLength(words) <= maxOverlapBytes &&
		!row.MayWait(words) &&
		!(s.IDsWait() && command.HasWord(words[1:], "SETTLE")) // which may end the wait of another call
}

// waitForKeys completes calls until none that is under way has a key of the next call, and may use the
// store for it again.
func (o *overlap) waitForKeys(row *command.Command, words [][]byte) {
	if o.keyed == 0 {
		return
	}
	o.keys = row.TouchedKeys(o.keys[:0], words, nil)
	for o.sharesKey() {
		o.completeFirst()
	}
	clear(o.keys)
}

// sharesKey reports whether a call that is under way has one of o.keys.
func (o *overlap) sharesKey() bool {
	for i := range o.count {
		if c := o.begun[(o.first+i)%maxOverlap]; command.ShareKey(c.keys, o.keys) {
			return true
		}
	}
	return false
}

// append adds a call after the calls that are under way. There must be fewer than maxOverlap.
func (o *overlap) append(c *coroutine) {
	o.begun[(o.first+o.count)%maxOverlap] = c
	o.count++
}

// takeCoroutine returns a coroutine for another call. If maxOverlap calls are under way, it first
// completes the first of them.
func (o *overlap) takeCoroutine() *coroutine {
	s := o.session
	if o.count == 0 {
		s.instance.hideTurnCall(s)
	}
	if o.count == maxOverlap {
		o.completeFirst()
	}
	if last := len(o.unused) - 1; last >= 0 {
		c := o.unused[last]
		o.unused = o.unused[:last]
		return c
	}
	return s.instance.takeCoroutine()
}

// releaseCoroutines returns the coroutines whose calls have ended to the instance.
func (o *overlap) releaseCoroutines() {
	s := o.session
	if len(o.unused) == 0 {
		return
	}
	for _, c := range o.unused {
		s.Charge(-c.charged)
		c.charged = 0
	}
	s.instance.coroutines.add(o.unused)
	clear(o.unused)
	o.unused = o.unused[:0]
	s.instance.showTurnCall(s)
}

// completeAll waits for all calls that are under way, and writes their replies.
func (o *overlap) completeAll() {
	for o != nil && o.count > 0 {
		o.completeFirst()
	}
}

// completeFirst waits for the first of the calls that are under way, and writes its reply. Later calls
// that do not use the store again run on when they are the first.
func (o *overlap) completeFirst() {
	c := o.begun[o.first]
	for !c.ended {
		c.await()
		o.resume(c)
		o.resumeKeyed()
	}
	o.begun[o.first] = nil
	if o.first, o.count = (o.first+1)%maxOverlap, o.count-1; len(c.keys) > 0 {
		o.keyed--
	}
	if c.sized {
		o.values--
	}
	o.complete(c)
	c.reset()
	o.unused = append(o.unused, c)
}

// resumeKeyed resumes the calls that may use the store again and need not wait any longer, so that
// their next steps wait together.
func (o *overlap) resumeKeyed() {
	for i := 0; i < o.count && o.keyed > 0; i++ {
		c := o.begun[(o.first+i)%maxOverlap]
		if len(c.keys) == 0 || c.ended {
			continue
		}
		select {
		case <-c.done:
			o.resume(c)
		default:
		}
	}
}

// resume runs a call until it waits or ends. All calls of a session share the state of the sampling
// for CL.TOP.
func (o *overlap) resume(c *coroutine) {
	s := o.session
	c.call.Sampling = s.call.Sampling
	c.resume()
	s.call.Sampling = c.call.Sampling
	if c.ended {
		o.chargeFor(c)
	}
}

// chargeFor charges the client for the memory of a call, which must not be waiting: while it waits,
// the store may run its functions on another goroutine.
func (o *overlap) chargeFor(c *coroutine) {
	s := o.session
	size := c.size()
	s.Charge(size - c.charged)
	c.charged = size
}

// complete writes the reply of a call that has ended, and counts it. After a call that has panicked,
// nothing is sent: see recoverPanic.
func (o *overlap) complete(c *coroutine) {
	s := o.session
	in, r := s.instance, &c.run
	switch s.mark = s.call.Out.Mark(); {
	case r.err == command.ErrStopped:
		s.CloseAfterReply()
		return
	case r.err != nil:
		text := in.CountError(r.row, r.err)
		o.writeOverlapped(func() { s.out.Error(text) })
	default:
		o.writeOverlapped(func() { s.out.Raw(c.out.Bytes()) })
	}
	if r.call != nil {
		in.count(r)
		in.announce(r)
		c.call.CountReads()
		o.work += c.call.Work
	}
}

// writeOverlapped writes a reply unless the client does not want it, or the connection is closing.
func (o *overlap) writeOverlapped(write func()) {
	s := o.session
	if s.ending == stays && s.replyMode == connection.RepliesOn {
		write()
	}
}

// hideTurnCall makes runningCall return nil for a client while its calls overlap: it would not return the call that has
// made a change.
func (in *Instance) hideTurnCall(s *Session) {
	if in.coroutines.announces {
		in.running.turns.Delete(s.ID)
	}
}

// showTurnCall undoes hideTurnCall.
func (in *Instance) showTurnCall(s *Session) {
	if in.coroutines.announces {
		in.running.turns.Store(s.ID, &s.call)
	}
}
