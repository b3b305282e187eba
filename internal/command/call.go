package command

import (
	"context"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"cellserver/internal/client"
	"cellserver/internal/gcra"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
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
	Abilities  store.Abilities // of the store
	MaxKeySize int             // bytes
	Limits     atomic.Pointer[resp.Limits]
	Room       Room
	Hooks      Hooks
	Stats      stats.Server
}

// Room is what maxmemory leaves (package maxmemory).
type Room interface {
	// Reserve counts bytes that a call is about to allocate, until Release. It returns false if there
	// is no room for them. If mayCollect is set, it may take milliseconds.
	Reserve(bytes int64, mayCollect bool) bool
	Release(bytes int64)
}

// Session has the methods of a session that calls of several families use. A family that needs more of
// it asserts an interface of its own. Calls outside the event loop have no session.
type Session interface {
	WaitingSession
	// Offload repeats the call outside the event loop, because it would occupy the loop for too
	// long. The call must have removed its own output.
	Offload()
	// CloseAfterReply closes the connection after the reply.
	CloseAfterReply()
	// Block blocks the client as w describes. The call's reply is sent when the wait ends.
	Block(w client.Block)
	// TakeSlowPath makes hooks that the call has set take effect in this turn, for the calls that
	// are pipelined after the call.
	TakeSlowPath()
	// OnSlowPath reports whether the session checks hooks in this turn.
	OnSlowPath() bool
}

// Background has the methods for calls outside the event loop, which may take long.
type Background interface {
	// Yield lets other calls run if any wait for a slot (see package background).
	Yield()
	// Await calls wait, and lets other calls run meanwhile.
	Await(wait func())
	// Reserve announces bytes of the reply before they are written. It may wait until there is
	// memory for a long reply. If it returns an error, the call must return it.
	Reserve(bytes int) error
}

// Call is one call of a command: the words, bound to the row's grammar, and the writer for the
// reply. A row reads its arguments in the order of its grammar, each with the method of its kind.
type Call struct {
	Context context.Context
	Session Session // nil for a call outside the event loop, such as one of an Unbounded row
	View    store.View
	Out     *resp.Writer

	Server *Server
	Client *client.Client // the caller

	Background Background // nil in a session's turn
	// Outcome is for a caller in this process that needs the decision as a value. Its type is known to the family of
	// the row. In a first attempt, the family fills the value that is here, and the reply is OK. A call that has waited
	// sets a new value and has its usual reply, because another client may get it (see TakeOver).
	Outcome      any
	OneStep      bool                // the call must use the store at most once: see Command.MakesOneStep
	Middleware   func(c *Call) error // runs the row, and its own code before and after; may be nil
	Caching      bool                // CLIENT CACHING applies to the call
	Row          *Command
	Words        [][]byte // borrowed from the input; the command's name first
	Bound        [MaxArgs]bound
	Repeatable   Repeatable // whether a call that repeats this one is simpler
	Extras       int        // how many options with Arg.Extra the call has; if none, Bound has no value for these
	Value        []byte     // the value that was read last; its memory is reused
	Hits, Misses int64      // keys that were read and existed, or did not; not yet added to the counters
	Next         int        // index of the argument that is read next

	// Work is the cost of the call, apart from reading its words. The unit is the time to copy a byte:
	// a copied byte counts as one, and other work as the number of bytes that could be copied in
	// the same time.
	Work int

	limiterState
	transactionState
	outcome
}

// limiterState is memory of the limiters, which keep it in the call so that they need not allocate.
type limiterState struct {
	Rule      limit.Rule           // the rule of the current limiter
	LastLimit gcra.Memo            // of the latest CL.THROTTLE
	Requests  []store.LimitRequest // of CL.TAKE
	All       any                  // of CL.ALL
	Limited   int64                // number of limited decisions that are not yet added to the counters
	Sampling  topk.Sampling        // of decisions, for CL.TOP
	// WithoutStore is set if the decision was not made by the store, because it fails.
	WithoutStore bool
	Waiting
}

// transactionState is set while EXEC makes calls; of a call outside of a transaction, only Snapshot may be.
type transactionState struct {
	InTransaction bool      // EXEC makes the call, with its keys locked
	Snapshot      any       // the snapshot that KeyRules.Touched gets for the call; nil for the present one
	Deferred      *Deferred // what waits until the keys are unlocked; nil outside a transaction
	PatternSteps  int       // steps that are left to the transaction for matching patterns
	MonitorLines  []byte    // the calls of the transaction, as MONITOR shows them
	Shared        int64     // nanoseconds of EXEC that are counted for the transaction's calls
}

// outcome describes how a call ends.
type outcome struct {
	Closes    bool   // the connection closes after the reply
	OnReply   func() // run by the session when it takes the reply of a call made outside the event loop
	Blocks    bool   // the client is blocked: the call ends later, and is timed then
	Offloaded bool   // the call is repeated outside the event loop, where it is timed and logged
}

// bound is the value of an argument in one call. It contains no pointers: it refers to a word by
// its index.
type bound struct {
	At int   // index of the argument's word, or of its first word if it repeats; 0 if it was left out
	N  int64 // an integer's value; of OneOf, 1 + the index of the token; 1 for a flag that is given
}

// Repeatable says what a call takes over from the one before it, if it repeats that one: it differs only in the
// word at index 1, which is the key, and in the last word if that is the token of ID, or in the keys that KeyRules.Find
// finds.
type Repeatable uint8

const (
	Nothing  Repeatable = iota
	Binding             // the arguments in Call.Bound
	Repeated            // the same, and the call before repeats one too
	Checks              // the same, and the checks of the session, which the call has passed
)

// Repeats reports, to a row with KeyRules.First, whether the call repeats the one before it (see Repeatable). The row
// must check the keys itself, and may reuse what it parsed from the other words.
func (c *Call) Repeats() bool { return c.Repeatable >= Repeated }

// EndsWithToken reports whether the last word of the call is its ID token, and token may be one of another call.
func (c *Call) EndsWithToken(token []byte) bool {
	return c.Extras > 0 && c.Bound[c.Row.Grammar.token].At == len(c.Words)-1 && len(token) <= store.MaxToken
}

// MaxArgs bounds the arguments of a row, so that binding them allocates nothing.
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

// Period returns the next argument, which is a period.
func (c *Call) Period() quota.Period { return quota.Period(c.arg().N) }

// Choice returns 1 + the index of the token that was given for the next argument, 0 for none.
func (c *Call) Choice() int { return int(c.arg().N) }

// ChoiceOf is like Choice, and also returns the word after the token.
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

// Run binds the words to the row's grammar and runs the row. If repeats is set, the call repeats the
// one before it, and Bound holds its arguments already: see Repeatable.
func (c *Call) Run(row *Command, words [][]byte, repeats bool) (err error) {
	c.Row, c.Words, c.Next, c.Repeatable, c.Work = row, words, 0, Nothing, 0
	c.Blocks, c.Offloaded = false, false
	switch {
	case repeats:
		err = c.CheckKey(words[row.FirstKey])
	case row.Parent != nil:
		err = c.bind(2)
	default:
		err = c.bind(1)
	}
	if err != nil {
		return err
	}
	if c.Repeatable = Binding; repeats {
		c.Repeatable = Repeated
	}
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

// HasOption reports whether the call has one of the options with these tokens.
func (c *Call) HasOption(tokens ...string) bool {
	for i := range c.Row.Args {
		a := &c.Row.Args[i]
		if c.Bound[i].At == 0 || len(a.Tokens) != 1 || a.extra && c.Extras == 0 {
			continue
		}
		if slices.Contains(tokens, a.Tokens[0]) {
			return true
		}
	}
	return false
}

// Option returns the integer of the option with a token, or the integer after its word (see Arg.Then); 0 if it was not
// given and has no default. Rows on the hot path read their arguments in order instead.
func (c *Call) Option(token string) int64 {
	for i := range c.Row.Args {
		a := &c.Row.Args[i]
		if len(a.Tokens) == 1 && a.Tokens[0] == token && (c.Extras > 0 || !a.extra) {
			return c.Bound[i].N
		}
	}
	return 0
}

// OptionAt returns the index, in the words, of the word after the token of an option; 0 if the option was
// not given.
func (c *Call) OptionAt(token string) int {
	for i := range c.Row.Args {
		a := &c.Row.Args[i]
		if len(a.Tokens) == 1 && a.Tokens[0] == token && (c.Extras > 0 || !a.extra) {
			return c.Bound[i].At
		}
	}
	return 0
}

// Option is an option that a call has.
type Option struct {
	Token string
	At    int   // index, in the words, of the word after the token
	N     int64 // its integer, or the integer after its word (see Arg.Then)
}

// ExtraOptions yields the options of a call that have Arg.Extra.
func (c *Call) ExtraOptions() iter.Seq[Option] {
	return func(yield func(Option) bool) {
		g := &c.Row.Grammar
		for i := g.usual; c.Extras > 0 && i < len(g.args); i++ {
			if b := c.Bound[i]; b.At != 0 && !yield(Option{g.args[i].Tokens[0], b.At, b.N}) {
				return
			}
		}
	}
}

// OnlyTokenAt returns the index, in the words, of the ID token of a call of a limiter if that is its only option with
// Arg.Extra; otherwise it returns 0. The call has some (Call.Extras).
func (c *Call) OnlyTokenAt() int {
	if c.Extras > 1 {
		return 0
	}
	return c.Bound[c.Row.Grammar.token].At
}

// OnlyExtra returns the option with Arg.Extra of a call that has just one; otherwise its token is empty.
func (c *Call) OnlyExtra() (only Option) {
	for o := range c.ExtraOptions() {
		if only.Token != "" {
			return Option{}
		}
		only = o
	}
	return only
}

// EventNames returns the names of the keyspace events, in order, for a change of a key by the call.
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
	case why == store.Created || why == store.Changed && row.Events.Replaces:
		return append([]string{NewEvent}, strings.Fields(changes)...)
	case why != store.Deleted:
		return strings.Fields(changes)
	case row.Events.Removal == ExpiredEvent: // it was written with an expiry in the past
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

// Counts are the hits, misses and work of a call at some moment. A store may run a function several
// times, so the function must begin with ResetCounts, to the Counts from before the first run.
type Counts struct {
	hits, misses int64
	work         int
}

// Counts returns the current counts of the call.
func (c *Call) Counts() Counts { return Counts{c.Hits, c.Misses, c.Work} }

// ResetCounts sets the counts back to earlier ones.
func (c *Call) ResetCounts(earlier Counts) {
	c.Hits, c.Misses, c.Work = earlier.hits, earlier.misses, earlier.work
}

// AfterCommit runs an effect outside the store: a count, a log entry, a message. Within a
// transaction it postpones the effect until the store has committed, because the store may run the
// transaction several times before that.
func (c *Call) AfterCommit(effect func()) {
	if !c.InTransaction {
		effect()
		return
	}
	c.Deferred.effects = append(c.Deferred.effects, effect)
}

// OnRollback is for a change outside the store on which later replies depend, so that it cannot wait
// for the commit: the subscriptions of the client, or a setting. Within a transaction, undo is run if
// the store does not commit, or before it runs the transaction again.
func (c *Call) OnRollback(undo func()) {
	if c.InTransaction {
		c.Deferred.undo = append(c.Deferred.undo, undo)
	}
}

// Rollback discards the results of a run of a transaction, and undoes its changes outside the store.
func (c *Call) Rollback() {
	for _, undo := range slices.Backward(c.Deferred.undo) {
		undo()
	}
	*c.Deferred = Deferred{}
	c.Limited, c.MonitorLines = 0, nil
}

// Committed runs the effects that AfterCommit has postponed.
func (c *Call) Committed() {
	for _, effect := range c.Deferred.effects {
		effect()
	}
}

// ReadContent returns the value of a key, or the form of a limiter's state. If the key changes its kind
// between the two attempts, it is read again.
func (c *Call) ReadContent(key []byte) (content []byte, e store.Entry, err error) {
	for {
		content, e, err = c.View.Read(c.Context, key, nil)
		if err != nil || e.Kind == limit.None || e.Kind.IsValue() {
			return content, e, err
		}
		content, e, err = c.View.ReadForm(c.Context, key, nil)
		if err != nil || !e.Kind.IsValue() {
			return content, e, err
		}
	}
}

// ChangeIf edits a key. The reply is 1 if edit returned a change, otherwise 0.
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

// Await calls a function that waits for something other than the processor, such as a disk. Other calls
// run meanwhile. It must not be called on an event loop or in a transaction.
func (c *Call) Await(wait func()) {
	if c.Background == nil {
		wait()
		return
	}
	c.Background.Await(wait)
}

// Reserve announces bytes of a reply that may be long, and may wait: see Background. In a
// transaction it does nothing: a transaction bounds its replies itself, and must not wait while
// keys are locked.
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
