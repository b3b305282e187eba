package command

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"

	"cellserver/internal/client"
	"cellserver/internal/gcra"
	"cellserver/internal/resp"
	"cellserver/internal/stats"
	"cellserver/internal/store"
	"cellserver/internal/topk"
)

// Server is the state that all calls of a server share.
type Server struct {
	Table      *Table
	Clock      store.Clock
	Databases  int
	MaxKeySize int // bytes
	Limits     atomic.Pointer[resp.Limits]
	Hooks      Hooks
	Stats      stats.Server
}

// Session is what a call may ask of the session that makes it in its turn.
type Session interface {
	// Offload makes the call again outside the event loop, because it takes too long there. The call
	// must have taken back what it has written.
	Offload()
	// Continue runs the rest of the call in pieces, one in each of the session's next turns, until
	// rest returns that it was the last. Until then the client gets no messages, and no other call is
	// made. Continue returns the words of the call, which stay valid until then; Call.Words does not.
	Continue(rest func() (last bool)) (words [][]byte)
	// Messages is the output for what the client gets although it wants no replies (CLIENT REPLY):
	// messages, and confirmations of subscriptions. Otherwise it is the call's own.
	Messages() *resp.Writer
	// WritePushes writes the messages that wait in the client's mailbox, so that they stand before the
	// reply to the call.
	WritePushes()
	// CloseAfterReply closes the connection after the reply.
	CloseAfterReply()
	// ReloadUser applies a change of what the session's own user may do.
	ReloadUser()
	// Block has the client wait for a time or for another client: the call's reply is w's.
	Block(w client.Block)
	// TakeSlowPath has hooks that the call has set take effect in this turn, for the calls that are
	// pipelined after it.
	TakeSlowPath()
	// OnSlowPath reports whether the session looks at hooks in this turn.
	OnSlowPath() bool
	// CountCalls adds the calls that the session has made in this turn to the statistics, except
	// the present one.
	CountCalls()
}

// Background is what a call may ask that is made outside the event loop, where it may take long.
type Background interface {
	// Yield lets other calls run, if some wait for a place to run.
	Yield()
	// Reserve counts bytes of the reply before they are made. It may wait until there is memory for a
	// long reply; its error ends the call.
	Reserve(bytes int) error
}

// Call is one call of a command: the words bound to the row's grammar, and the place of the reply. A
// row reads its arguments in the order of its grammar, each with the method of its kind.
type Call struct {
	Context context.Context
	Session Session // nil for a call that is made outside the event loop, such as those of an Unbounded row
	View    store.View
	Out     *resp.Writer

	Server *Server
	Client *client.Client // that makes the call

	Background   Background          // nil in a session's turn
	Middleware   func(c *Call) error // runs the row, with what is done before and after it; nil for none
	Caching      bool                // CLIENT CACHING applies to the call
	Row          *Command
	Words        [][]byte // borrowed from the input; the command's name first
	Bound        [MaxArgs]bound
	IsBound      bool   // Bound holds the words of a call of Row
	Value        []byte // memory for the value that was read last
	Hits, Misses int64  // keys that were read and existed, or did not; not yet added to the counters
	Next         int    // index of the argument that is read next

	// Work is what the call has cost beyond its words. Its unit is the time in which a byte is copied:
	// copied bytes count as one each, other work as the bytes that could be copied meanwhile.
	Work int

	limiterState
	transactionState
	outcome
}

// limiterState is what the limiters keep in a call, so that they need no memory of their own.
type limiterState struct {
	Rule      store.Rule           // of the limiter that is asked
	LastLimit gcra.Memo            // of the latest CL.THROTTLE
	Requests  []store.LimitRequest // of CL.ALL
	Limited   int64                // decisions that limited, not yet added to the counters
	Sampling  topk.Sampling        // of decisions, for CL.TOP
}

// transactionState is set while EXEC makes calls.
type transactionState struct {
	InTransaction bool      // EXEC makes the call, with its keys locked
	Deferred      *Deferred // calls that are made when the keys are unlocked; nil outside a transaction
	PatternSteps  int       // that the transaction may still take to match patterns
	MonitorLines  []byte    // of the transaction, for MONITOR
	effects       []func()  // see AfterCommit
}

// outcome says how a call ends.
type outcome struct {
	Closes    bool   // the connection closes after the reply
	OnReply   func() // run by the session when it takes the reply of a call made outside the event loop
	Blocks    bool   // the client blocks: the call ends later, and its time is taken then
	Offloaded bool   // the call is made again outside the event loop, and is timed and logged there
}

// bound is the value of an argument in one call. It holds no pointers: words are kept in the call.
type bound struct {
	At int   // index of the argument's word, or of its first word if it repeats; 0 if it was left out
	N  int64 // the value of an integer; 1 + the index of the token of OneOf; 1 for a flag that is given
}

// MaxArgs bounds the arguments of a row, so that a call needs no memory of its own for them.
const MaxArgs = 12

func (c *Call) arg() *bound {
	c.Next++
	return &c.Bound[c.Next-1]
}

// Key returns the next argument, a key. It is borrowed from the input.
func (c *Call) Key() []byte { return c.Words[c.arg().At] }

// Word returns the next argument, a word; nil if it is optional and was left out. It is borrowed from
// the input.
func (c *Call) Word() []byte {
	if b := c.arg(); b.At != 0 {
		return c.Words[b.At]
	}
	return nil
}

// Int returns the next argument, an integer within its bounds, or its default.
func (c *Call) Int() int64 { return c.arg().N }

// Choice returns 1 + the index of the token that was given for the next argument, 0 for none.
func (c *Call) Choice() int { return int(c.arg().N) }

// ChoiceOf is Choice, and returns the word behind the token too.
func (c *Call) ChoiceOf() (choice int, word []byte) {
	b := c.arg()
	if b.At != 0 {
		word = c.Words[b.At]
	}
	return int(b.N), word
}

// Flag reports whether the token of the next argument was given.
func (c *Call) Flag() bool { return c.arg().N != 0 }

// Many returns the words of the next argument, which repeats. They are borrowed from the input.
func (c *Call) Many() [][]byte {
	if b := c.arg(); b.At != 0 {
		return c.Words[b.At:]
	}
	return nil
}

// Run binds the words to the row's grammar and runs the row. If repeats is set, the words differ from
// those of the call before in the key at index 1 alone, and the binding is used again.
func (c *Call) Run(row *Command, words [][]byte, repeats bool) (err error) {
	bound := repeats && c.IsBound && c.Row == row
	c.Row, c.Words, c.Next, c.IsBound, c.Work = row, words, 0, false, 0
	c.Blocks, c.Offloaded = false, false
	switch {
	case bound:
		err = c.CheckKey(words[1])
	case row.Parent != nil:
		err = c.bind(2)
	default:
		err = c.bind(1)
	}
	if err != nil {
		return err
	}
	c.IsBound = true
	if c.Middleware != nil {
		return c.Middleware(c)
	}
	return row.Run(c)
}

// CountLookup counts a key that was read, as a hit if it exists.
func (c *Call) CountLookup(exists bool) {
	if exists {
		c.Hits++
	} else {
		c.Misses++
	}
}

// WriteBool writes the integer 1 or 0.
func (c *Call) WriteBool(value bool) {
	n := int64(0)
	if value {
		n = 1
	}
	c.Out.Int(n)
}

// HasOption reports whether the call gives one of the options, which are named by their tokens.
func (c *Call) HasOption(tokens ...string) bool {
	for i, a := range c.Row.Args {
		for _, token := range tokens {
			if len(a.Tokens) == 1 && a.Tokens[0] == token && c.Bound[i].At != 0 {
				return true
			}
		}
	}
	return false
}

// EventNames returns the keyspace events of a change of a key by the call, in their order.
func (c *Call) EventNames(why store.Event) []string {
	row := c.Row
	changes := row.Events.Change
	switch {
	case row.Events.ChangeOf != nil:
		changes = row.Events.ChangeOf(c)
	case changes == "":
		changes = row.Name
	}
	switch {
	case why == store.Expired:
		return []string{ExpiredEvent}
	case why == store.Created:
		return append([]string{NewEvent}, strings.Fields(changes)...)
	case why != store.Deleted:
		return strings.Fields(changes)
	case row.Events.Removal == ExpiredEvent: // it was written with an expiry that was over already
		return append(strings.Fields(changes), ExpiredEvent)
	case row.Events.Removal != "":
		return []string{row.Events.Removal}
	}
	return []string{DeletedEvent}
}

// The names of events that are not the names of commands.
const (
	ExpiredEvent = "expired"
	DeletedEvent = "del"
	MissedEvent  = "keymiss"
	NewEvent     = "new"
)

// Counts are the hits, misses and work of a call at some moment. A store may run a function that is
// given to it several times, so the function begins with ResetCounts to what they were before.
type Counts struct {
	hits, misses int64
	moved        int
}

// Counts returns what the call has counted so far.
func (c *Call) Counts() Counts { return Counts{c.Hits, c.Misses, c.Work} }

// ResetCounts takes back what was counted since then.
func (c *Call) ResetCounts(then Counts) {
	c.Hits, c.Misses, c.Work = then.hits, then.misses, then.moved
}

// AfterCommit has an effect take place that is not the store's: a count, a log entry, a message. Of a
// call of a transaction it takes place when the store has kept what the transaction did, because the
// store may run the transaction several times before.
func (c *Call) AfterCommit(effect func()) {
	if !c.InTransaction {
		effect()
		return
	}
	c.effects = append(c.effects, effect)
}

// BeginTransaction forgets what an earlier run of the transaction has left.
func (c *Call) BeginTransaction() {
	*c.Deferred = Deferred{}
	c.Limited, c.MonitorLines, c.effects = 0, nil, c.effects[:0]
}

// Committed has the effects of the transaction's calls take place.
func (c *Call) Committed() {
	for _, effect := range c.effects {
		effect()
	}
	c.effects = nil
}

// ChangeIf edits a key. It answers 1 if edit returned a change, and 0 if not.
func (c *Call) ChangeIf(key []byte, edit func(e store.Entry) (store.Change, error)) error {
	done, counted := false, c.Counts()
	err := c.View.Edit(c.Context, key, func(e store.Entry, _ []byte) (store.Change, error) {
		c.ResetCounts(counted)
		change, err := edit(e)
		done = change.Operation != store.NoChange
		c.Work += len(change.Value.Bytes)
		return change, err
	})
	if err != nil {
		return err
	}
	c.WriteBool(done)
	return nil
}

// Yield lets other goroutines and calls run. A call that may take long calls it after each fraction of
// a millisecond of work. In a transaction it does nothing, because keys are locked.
func (c *Call) Yield() {
	if c.InTransaction {
		return
	}
	runtime.Gosched()
	if c.Background != nil {
		c.Background.Yield()
	}
}

// Reserve counts bytes of a reply that may get long, before they are made, and may wait: see
// Background. In a transaction it does nothing: its replies have a bound of their own, and it must
// not wait while keys are locked.
func (c *Call) Reserve(bytes int) error {
	if c.Background == nil || c.InTransaction {
		return nil
	}
	return c.Background.Reserve(bytes)
}

// CloseAfterReply closes the connection after the reply.
func (c *Call) CloseAfterReply() {
	if c.Session != nil {
		c.Session.CloseAfterReply()
	}
	c.Closes = true
}
