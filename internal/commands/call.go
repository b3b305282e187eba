package commands

import (
	"cellserver/internal/gcra"
	"cellserver/internal/resp"
	"cellserver/internal/store"
	"cellserver/internal/topk"
	"context"
	"runtime"
	"strings"
	"sync/atomic"
)

// Server is what all calls of a server share.
type Server struct {
	Table      *Table
	Clock      store.Clock
	Databases  int
	MaxKeySize int // bytes
	Limits     atomic.Pointer[resp.Limits]
}

// InSession is what a command may ask of the session in whose turn its call is made.
type InSession interface {
	// HandOver has the call made again beside the event loop. What it has written so far must have been taken back.
	HandOver()
}

// Beside is what a call needs that is made beside its session, where it may take long.
type Beside interface {
	// GiveWay lets others have the place of the call for a while, if they wait for it.
	GiveWay()
	// Keep counts bytes of the reply, as they come. It may wait; its error ends the call.
	Keep(bytes int) error
}

// Call is one command on its way: the words bound to the row's grammar, and where the reply goes. A row reads its
// arguments in the order of its grammar, each with the method of its kind.
type Call struct {
	Context context.Context
	Session InSession // nil for a call that is made beside its session, as those of an Unbounded row
	View    store.View
	Out     *resp.Writer

	Server *Server
	Client any // whose call it is: a session, which commands of connections know

	beside        Beside              // nil in a session's turn
	around        func(c *Call) error // makes the call, with what is to be done before and after it; nil for nothing
	caching       bool                // CLIENT CACHING was said
	row           *Command
	words         [][]byte // the command's name first
	bound         [maxArgs]bound
	isBound       bool           // to words of this row
	rule          store.Rule     // of the limiter that is asked
	latest        gcra.Memo      // of the latest CL.THROTTLE
	takes         []store.Taking // of CL.ALL
	value         []byte         // that was read last
	shown         []byte         // lines for MONITOR, of a transaction
	limits        int64          // decisions that limited, not counted yet
	hits, misses  int64          // keys that were read, not counted yet
	moved         int            // bytes of values, by this call
	sampling      topk.Sampling  // of limiters' decisions, for CL.TOP
	last          bool           // the conversation ends with its reply
	then          func()         // what the session does when it takes the reply, of a call that is made beside it
	later         *later         // of the transaction that is being executed; nil outside of one
	lasts         bool           // it goes on when its row has run: who ends it says how long it took
	handedOver    bool           // it is made again beside its session, where it is timed and shown
	steps         int            // of matching patterns, that are left to a transaction
	inTransaction bool           // EXEC makes it, with its keys locked
	next          int
}

// bound is an argument's value in one call. It holds no pointer: the words are the call's.
type bound struct {
	at int   // number of its word in the call, of its first if it repeats; 0 if it was left out
	n  int64 // of an integer; of OneOf, 1 + the token's number; 1 for a flag that is there
}

// maxArgs bounds a row's arguments, so that a call needs no memory of its own.
const maxArgs = 12

func (c *Call) arg() *bound {
	c.next++
	return &c.bound[c.next-1]
}

// Key is a key, borrowed from the input.
func (c *Call) Key() []byte { return c.words[c.arg().at] }

// Word is a word as it came, borrowed from the input; nil if it is optional and was left out.
func (c *Call) Word() []byte {
	if b := c.arg(); b.at != 0 {
		return c.words[b.at]
	}
	return nil
}

// Int is an integer within its bounds, or its default.
func (c *Call) Int() int64 { return c.arg().n }

// Choice is 1 + the number of the token that was given, 0 for none.
func (c *Call) Choice() int { return int(c.arg().n) }

// ChoiceOf is Choice, and the word behind the token.
func (c *Call) ChoiceOf() (choice int, word []byte) {
	b := c.arg()
	if b.at != 0 {
		word = c.words[b.at]
	}
	return int(b.n), word
}

// Flag says whether the token was given.
func (c *Call) Flag() bool { return c.arg().n != 0 }

// Many is the words of an argument that repeats, borrowed from the input.
func (c *Call) Many() [][]byte {
	if b := c.arg(); b.at != 0 {
		return c.words[b.at:]
	}
	return nil
}

// run binds the words and lets the row answer. If the call repeats the one before it, about another key, so does the binding.
func (c *Call) run(row *Command, words [][]byte, repeats bool) (err error) {
	bound := repeats && c.isBound && c.row == row
	c.row, c.words, c.next, c.isBound, c.moved = row, words, 0, false, 0
	c.lasts, c.handedOver = false, false
	switch {
	case bound:
		err = c.checkKey(words[1])
	case row.parent != nil:
		err = c.bind(2)
	default:
		err = c.bind(1)
	}
	if err != nil {
		return err
	}
	c.isBound = true
	if c.around != nil {
		return c.around(c)
	}
	return row.Run(c)
}

// found counts a key that was read: whether it was there.
func (c *Call) found(there bool) {
	if there {
		c.hits++
	} else {
		c.misses++
	}
}

// oneIf writes 1 or 0.
func (c *Call) oneIf(done bool) {
	n := int64(0)
	if done {
		n = 1
	}
	c.Out.Int(n)
}

// gives says whether a call has one of the options.
func (c *Call) gives(tokens ...string) bool {
	for i, a := range c.row.Args {
		for _, token := range tokens {
			if len(a.tokens) == 1 && a.tokens[0] == token && c.bound[i].at != 0 {
				return true
			}
		}
	}
	return false
}

// eventNames are the events that a call is to a key, in their order, given what happened to it.
func (c *Call) eventNames(why store.Why) []string {
	row := c.row
	changes := row.Event
	switch {
	case row.EventOf != nil:
		changes = row.EventOf(c)
	case changes == "":
		changes = row.Name
	}
	switch {
	case why == store.Expired:
		return []string{expiredEvent}
	case why == store.Made:
		return append([]string{newEvent}, strings.Fields(changes)...)
	case why != store.Deleted:
		return strings.Fields(changes)
	case row.Taken == expiredEvent: // it was written, and its time was over then
		return append(strings.Fields(changes), expiredEvent)
	case row.Taken != "":
		return []string{row.Taken}
	}
	return []string{deletedEvent}
}

// The names of events that are not the names of commands.
const (
	expiredEvent = "expired"
	deletedEvent = "del"
	missedEvent  = "keymiss"
	newEvent     = "new"
)

// changeIf answers 1 if there was something to change, and 0 if not.
func (c *Call) changeIf(key []byte, edit func(e store.Entry) (store.Change, error)) error {
	done := false
	err := c.View.Edit(c.Context, key, func(e store.Entry, _ []byte) (store.Change, error) {
		change, err := edit(e)
		done = change.What != store.Leave
		c.moved += len(change.Value.Bytes)
		return change, err
	})
	if err != nil {
		return err
	}
	c.oneIf(done)
	return nil
}

// giveWay is called by a call that may take long between pieces of its work, of a fraction of a millisecond: others that wait for its place
// have theirs. In a transaction, whose keys are locked, nothing waits for it.
func (c *Call) giveWay() {
	if c.inTransaction {
		return
	}
	runtime.Gosched()
	if c.beside != nil {
		c.beside.GiveWay()
	}
}

// keep counts bytes of a reply that may get long, as they come. In a transaction replies have another bound, and nothing may wait.
func (c *Call) keep(bytes int) error {
	if c.beside == nil || c.inTransaction {
		return nil
	}
	return c.beside.Keep(bytes)
}
