package command

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"

	"cellserver/internal/client"
	"cellserver/internal/gcra"
	"cellserver/internal/resp"
	"cellserver/internal/store"
	"cellserver/internal/topk"
)

// Server is what all calls of a server share.
type Server struct {
	Table      *Table
	Clock      store.Clock
	Databases  int
	MaxKeySize int // bytes
	Limits     atomic.Pointer[resp.Limits]
}

// Session is what a command may ask of the session in whose turn its call is made.
type Session interface {
	// Offload has the call made again beside the event loop. What it has written so far must have
	// been taken back.
	Offload()
	// Continue has the rest of the call made in pieces, one in each of the session's next turns,
	// until rest says that it was the last. Until then the client gets no message and no other call
	// is made. It returns the call's words, which stay as they are meanwhile; the call's own do
	// not.
	Continue(rest func() (last bool)) (words [][]byte)
	// WriteUnmuted writes what the client is told whether it wants replies or not (CLIENT REPLY):
	// messages, and that it is subscribed.
	WriteUnmuted(write func())
	// WritePushes has the messages that wait stand before the reply that is being written.
	WritePushes()
	// CloseAfterReply ends the conversation after the reply.
	CloseAfterReply()
	// ReloadUser is for a call that changes what its own client may do.
	ReloadUser()
}

// Background is what a call needs that is made beside its session, where it may take long.
type Background interface {
	// Yield lets others have the place of the call for a while, if they wait for it.
	Yield()
	// Reserve counts bytes of the reply, as they come. It may wait; its error ends the call.
	Reserve(bytes int) error
}

// Call is one command on its way: the words bound to the row's grammar, and where the reply goes. A
// row reads its arguments in the order of its grammar, each with the method of its kind.
type Call struct {
	Context context.Context
	Session Session // nil for a call that is made beside its session, as those of an Unbounded row
	View    store.View
	Out     *resp.Writer

	Server *Server
	Client *client.Client // whose call it is
	Owner  any            // what the commands of one server share that are no family yet

	Background   Background          // nil in a session's turn
	Middleware   func(c *Call) error // makes the call, with what is to be done before and after it; nil for nothing
	Caching      bool                // CLIENT CACHING was said
	Row          *Command
	Words        [][]byte // the command's name first
	Bound        [MaxArgs]bound
	IsBound      bool   // to words of this row
	Value        []byte // that was read last
	Hits, Misses int64  // keys that were read, not counted yet
	Work         int    // bytes of values, by this call
	Next         int

	limiting
	executing
	ending
}

// limiting is what the limiters keep in a call.
type limiting struct {
	Rule      store.Rule           // of the limiter that is asked
	LastLimit gcra.Memo            // of the latest CL.THROTTLE
	Requests  []store.LimitRequest // of CL.ALL
	Limited   int64                // decisions that limited, not counted yet
	Sampling  topk.Sampling        // of limiters' decisions, for CL.TOP
}

// executing is about a call that EXEC makes.
type executing struct {
	Deferred      *Deferred // of the transaction that is being executed; nil outside of one
	PatternSteps  int       // of matching patterns, that are left to a transaction
	MonitorLines  []byte    // lines for MONITOR, of a transaction
	InTransaction bool      // EXEC makes it, with its keys locked
}

// ending is how a call ends.
type ending struct {
	Closes    bool   // the conversation ends with its reply
	OnReply   func() // what the session does when it takes the reply, of a call that is made beside it
	Blocks    bool   // it goes on when its row has run: who ends it says how long it took
	Offloaded bool   // it is made again beside its session, where it is timed and shown
}

// bound is an argument's value in one call. It holds no pointer: the words are the call's.
type bound struct {
	At int   // number of its word in the call, of its first if it repeats; 0 if it was left out
	N  int64 // of an integer; of OneOf, 1 + the token's number; 1 for a flag that is there
}

// MaxArgs bounds a row's arguments, so that a call needs no memory of its own.
const MaxArgs = 12

func (c *Call) arg() *bound {
	c.Next++
	return &c.Bound[c.Next-1]
}

// Key is a key, borrowed from the input.
func (c *Call) Key() []byte { return c.Words[c.arg().At] }

// Word is a word as it came, borrowed from the input; nil if it is optional and was left out.
func (c *Call) Word() []byte {
	if b := c.arg(); b.At != 0 {
		return c.Words[b.At]
	}
	return nil
}

// Int is an integer within its bounds, or its default.
func (c *Call) Int() int64 { return c.arg().N }

// Choice is 1 + the number of the token that was given, 0 for none.
func (c *Call) Choice() int { return int(c.arg().N) }

// ChoiceOf is Choice, and the word behind the token.
func (c *Call) ChoiceOf() (choice int, word []byte) {
	b := c.arg()
	if b.At != 0 {
		word = c.Words[b.At]
	}
	return int(b.N), word
}

// Flag says whether the token was given.
func (c *Call) Flag() bool { return c.arg().N != 0 }

// Many is the words of an argument that repeats, borrowed from the input.
func (c *Call) Many() [][]byte {
	if b := c.arg(); b.At != 0 {
		return c.Words[b.At:]
	}
	return nil
}

// Run binds the words and lets the row answer. If the call repeats the one before it, about another
// key, so does the binding.
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

// CountLookup counts a key that was read: whether it was there.
func (c *Call) CountLookup(there bool) {
	if there {
		c.Hits++
	} else {
		c.Misses++
	}
}

// WriteBool writes 1 or 0.
func (c *Call) WriteBool(done bool) {
	n := int64(0)
	if done {
		n = 1
	}
	c.Out.Int(n)
}

// HasOption says whether a call has one of the options.
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

// EventNames are the events that a call is to a key, in their order, given what happened to it.
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
	case row.Events.Removal == ExpiredEvent: // it was written, and its time was over then
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

// Counts are what a call has counted so far of what it reads and moves. A function that is given to
// the store, which may run it again, begins by counting from there.
type Counts struct {
	hits, misses int64
	moved        int
}

// Counts is what the call has counted.
func (c *Call) Counts() Counts { return Counts{c.Hits, c.Misses, c.Work} }

// ResetCounts forgets what was counted since.
func (c *Call) ResetCounts(then Counts) {
	c.Hits, c.Misses, c.Work = then.hits, then.misses, then.moved
}

// ChangeIf answers 1 if there was something to change, and 0 if not.
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

// Yield is called by a call that may take long between pieces of its work, of a fraction of a
// millisecond: others that wait for its place have theirs. In a transaction, whose keys are locked,
// nothing waits for it.
func (c *Call) Yield() {
	if c.InTransaction {
		return
	}
	runtime.Gosched()
	if c.Background != nil {
		c.Background.Yield()
	}
}

// Reserve counts bytes of a reply that may get long, as they come. In a transaction replies have
// another bound, and nothing may wait.
func (c *Call) Reserve(bytes int) error {
	if c.Background == nil || c.InTransaction {
		return nil
	}
	return c.Background.Reserve(bytes)
}

// CloseAfterReply ends the conversation after the reply.
func (c *Call) CloseAfterReply() {
	if c.Session != nil {
		c.Session.CloseAfterReply()
	}
	c.Closes = true
}
