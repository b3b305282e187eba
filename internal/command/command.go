// Package command is the language of commands: a row says everything about one command, the grammar
// reads its arguments, and a Call is one command on its way. It knows no session.
//
// To add a command, write a row in its family's folder below internal/commands, name it in the
// family's list, and record a conversation with it in the testdata of that folder.
package command

import (
	"strings"

	"cellserver/internal/acl"
	"cellserver/internal/store"
)

// Command is one row: name, grammar, words for the manual, code. Everything that the server says or
// checks about a command derives from its row: arity, key positions, refusals, COMMAND's replies,
// usage, docs/commands.md.
type Command struct {
	Name       string // in lower case
	Summary    string
	Group      string // of the manual: limiter, generic, string, connection, server, cluster
	Since      string // the version that had it first: Redis's, or cellserver's for a CL command
	Complexity string
	Reply      string // what it answers, for the manual
	Flags      Flags  // Redis's: COMMAND INFO shows them, and ACL categories follow from them
	Cost       Cost   // what a call costs the event loop
	Traits     Traits // how a call is scheduled
	// What a call costs a transaction, where words and values alone do not say; nil if they do.
	Effort    *Effort
	Category  string                      // ACL category, or several, where it is not the group's
	Tips      []string                    // hints for clients and proxies, as COMMAND INFO gives them
	KeyAccess string                      // what it does with its keys, as COMMAND INFO's key specs say: see below
	Accesses  func(words [][]byte) string // what a call does, where that depends on its words
	Channels  channelWords                // which of its words name channels, as users' rules see them
	// Word that is the first shard channel, which COMMAND INFO shows where others have keys; 0 for
	// none.
	ChannelAt int
	Args      []Arg
	AnyMore   bool // further words are allowed, and ignored
	// Hides the words of a call that SLOWLOG and MONITOR must not show; nil for none.
	Secrets func(words [][]byte, hide func(word int))
	// Refuses a call of more words than are looked at together; nil if it may have any number.
	OverLong error
	// Words of the shortest call, where Redis says another number than the grammar.
	Min int
	// Appends the keys of a call, where the grammar does not say; false if it makes no sense.
	Keys func(keys, words [][]byte) ([][]byte, bool)
	// What keyspace notifications call its changes, in words; its name if empty.
	Event   string
	EventOf func(c *Call) string // the same, where it depends on the call
	Taken   string               // what they call it if a key goes, del if empty
	// Word that says how many keys follow it, of those that Keys finds; 0 for none.
	KeyCountAt int
	KeyStep    int // how far those stand apart
	Run        func(c *Call) error
	Subs       []*Command // of a container such as CLIENT; their names are "client|id"

	// What a table derives: see Table.add. The rows that All lists have none of it.
	Parent  *Command
	Number  int                // in the table
	access  []acl.Access       // KeyAccess, as users' rules see it
	Decides bool               // a limiter: its reply begins with limited, 0 or 1
	Peeks   func(c *Call) bool // of a limiter: whether a call, once it is bound, only looks
	Grammar grammar
	// Word that is the first key, 0 if there is none; if 1, calls that differ in it alone are bound
	// once (see ahead).
	FirstKey int
}

// KeyAccess begins with RO (the key is read), RW (read and changed), OW (overwritten) or RM
// (removed), and then says what of: ACCESS (the value is looked at), UPDATE (changed), INSERT
// (added to), DELETE (taken away). EXISTS is "RO": it looks at no value. GET is "RO ACCESS",
// CL.THROTTLE "RW ACCESS UPDATE", DEL "RM DELETE". Where it does something else with each of its
// keys, there are commas between: COPY is "RO ACCESS, OW UPDATE".

// Flags say what kind of command it is.
type Flags uint32

const (
	Write     Flags = 1 << iota // it may change a key
	ReadOnly                    // it reads keys and changes none
	DenyOOM                     // it may need memory, so that clients expect an OOM error of it
	Admin                       // for those who run the server
	PubSub                      // about channels
	NoScript                    // Redis does not let scripts call it
	Loading                     // answered while a snapshot is read
	Stale                       // answered by a replica without its master
	Fast                        // takes a time that does not depend on what is stored
	NoAuth                      // answered before AUTH
	AllowBusy                   // answered while Redis runs a script
	Dangerous                   // not for everybody, as ACL categories go
	Unlogged                    // SLOWLOG does not keep it: what it makes is kept
	NoMulti                     // never within a transaction
)

// Cost is what a call costs the event loop that makes it. It is ours: Redis's Fast is an ACL
// category.
type Cost uint8

const (
	Bounded   Cost = iota // up to half a turn, such as INFO
	Constant              // about a microsecond, and as much again for each few words
	Unbounded             // grows with keys or clients: a goroutine of its own makes it, see Session.park
)

// Traits say how a call is scheduled, and what else a session must know about it.
type Traits uint32

const (
	Unqueued         Traits = 1 << iota // made at once, also within a transaction
	Executes                            // makes the calls that are queued
	AllowedFull                         // leaves a transaction though memory is full
	SelectsDatabase                     // for the calls after it
	SwapsDatabases                      // two databases change their numbers
	AnyKey                              // may touch any key: a transaction with it locks them all
	WalksKeys                           // looks at every key
	ValueSized                          // its cost grows with the values of its keys
	Sessionless                         // needs no session, though it is about no key
	DropsRights                         // the calls behind it may be allowed less
	WhileSubscribed                     // allowed in RESP2 while the client is subscribed
	KeepsCaching                        // what CLIENT CACHING said is still about the next call
	DecimalWords                        // integers may have a sign and leading zeros, as redis-cell takes them
	HidesSubcommands                    // a subcommand that is not there is refused as an unknown command
)

// needsAt is where in Traits the abilities begin that a row needs of the store.
const needsAt = 24

// Needs is the trait of a row that needs what a store may lack: without it, the calls of the row
// are refused.
func Needs(abilities store.Abilities) Traits { return Traits(abilities) << needsAt }

// Effort says what a call in a transaction costs, where that does not follow from its words and the
// values of its keys alone.
type Effort struct {
	Fixed   func(words [][]byte) int              // bytes that could be moved meanwhile, beside those it moves
	PerByte int                                   // how many bytes could be moved in the time that one takes; 0 for one
	Creates func(words [][]byte, longest int) int // bytes that a call may make, where a value may be so long
	Reads   func(words [][]byte, size int) int    // bytes that it reads of a value of that size
	// Whether the cost of this call grows with values, though not of every call.
	Sized func(words [][]byte) bool
}

// Tips that several rows give: for proxies, to which shards of a cluster a command goes and how the
// replies become one; and whether the same call may answer differently.
const AllShards = "request_policy:all_shards"

var (
	SeveralShards = []string{"request_policy:multi_shard", "response_policy:agg_sum"}
	Varying       = []string{"nondeterministic_output"}
)

// flagNames are COMMAND INFO's words, in its order. Dangerous shows as a category.
var flagNames = []struct {
	flag Flags
	name string
}{
	{Write, "write"}, {ReadOnly, "readonly"}, {DenyOOM, "denyoom"}, {Admin, "admin"}, {PubSub, "pubsub"},
	{NoScript, "noscript"},
	{Loading, "loading"}, {Stale, "stale"}, {Unlogged, "skip_slowlog"}, {Fast, "fast"}, {NoAuth, "no_auth"},
	{NoMulti, "no_multi"}, {AllowBusy, "allow_busy"},
}

// Upper is a command's name as the manual writes it: CLIENT ID.
func (row *Command) Upper() string { return strings.ToUpper(strings.ReplaceAll(row.Name, "|", " ")) }

// WordsFrom makes a row's Secrets of all words from one on.
func WordsFrom(first int) func(words [][]byte, hide func(word int)) {
	return func(words [][]byte, hide func(word int)) {
		for i := first; i < len(words); i++ {
			hide(i)
		}
	}
}

// Cut is the beginning of a word, of so many bytes at most.
func Cut(word []byte, bytes int) string { return string(word[:min(len(word), bytes)]) }
