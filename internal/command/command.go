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

// Command is one row of the table of commands: name, grammar, manual and code. Everything that the
// server says or checks about a command is derived from its row: arity, key positions, refusals, the
// replies of COMMAND, usage, docs/commands.md.
type Command struct {
	Name string // in lower case

	// For the manual, COMMAND INFO and COMMAND DOCS.
	Summary    string
	Group      string // limiter, generic, string, transactions, pubsub, connection, server or cluster
	Since      string // the first version that has it: Redis's, or cellserver's for a CL command
	Complexity string
	Reply      string   // the reply in words
	Category   string   // ACL categories, separated by spaces, unless it is the one of the group
	Tips       []string // hints for clients and proxies

	Flags  Flags   // Redis's: COMMAND INFO shows them, and ACL categories follow from them
	Cost   Cost    // what a call costs the event loop
	Effort *Effort // what a call costs a transaction, where its words and values do not say; nil if they do
	Traits Traits  // how a call is scheduled

	Args     []Arg
	AnyMore  bool  // more words are allowed, and ignored
	Min      int   // words of the shortest call, where Redis says another number than the grammar
	OverLong error // refuses a call of more words than are read at once; nil if it may have any number
	// Secrets calls hide with the index of each word that SLOWLOG and MONITOR must not show; nil if
	// there are none.
	Secrets func(words [][]byte, hide func(word int))

	// KeyAccess says what the command does with its keys, in the words of COMMAND INFO's key specs:
	// RO (the key is read), RW (read and changed), OW (overwritten) or RM (removed), and then what of
	// it: ACCESS (the value is looked at), UPDATE (changed), INSERT (added to), DELETE (taken away).
	// EXISTS is "RO": it looks at no value. GET is "RO ACCESS", CL.THROTTLE "RW ACCESS UPDATE", DEL
	// "RM DELETE". If it differs between keys, there are commas between: COPY is "RO ACCESS, OW
	// UPDATE".
	KeyAccess string
	Keys      KeyRules     // where keys stand and what becomes of them, beyond Args and KeyAccess
	Channels  ChannelWords // which words name channels, for the rules of users
	Events    Events       // the keyspace events of its changes

	Run  func(c *Call) error
	Subs []*Command // of a container such as CLIENT; their names are "client|id"

	derived
}

// KeyRules say where the keys of a call stand, and what the call does with them, where that does not
// follow from Args and KeyAccess. Most rows have none.
type KeyRules struct {
	// Find appends the keys of a call, and returns false if its words make no sense.
	Find    func(keys, words [][]byte) ([][]byte, bool)
	First   int // with Find: the index of the first key, 0 if it varies
	CountAt int // with Find: the index of the word that says how many keys follow it, 0 for none
	Step    int // with CountAt: words from one key to the next

	Access func(words [][]byte) string // the KeyAccess of one call; nil if it is the same for all
	Peeks  func(c *Call) bool          // of a limiter: whether a call, whose words are bound, changes nothing
}

// Events are the keyspace events of a command, several of them separated by spaces. By default a
// change is called as the command, and a removal is "del".
type Events struct {
	Change   string
	ChangeOf func(c *Call) string // Change, where it depends on the call
	Removal  string
}

// derived is what a table works out for its rows. It is empty in the rows that families list.
type derived struct {
	Parent   *Command     // the container of a subcommand
	Number   int          // of the row in its table
	Grammar  grammar      // of Args
	FirstKey int          // the index of the first key, 0 if there is none or it varies
	access   []acl.Access // KeyAccess, as the rules of users see it
}

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
	ChangesRights                       // the calls behind it may be allowed less
	WhileSubscribed                     // allowed in RESP2 while the client is subscribed
	KeepsCaching                        // what CLIENT CACHING said is still about the next call
	DecimalWords                        // integers may have a sign and leading zeros, as redis-cell takes them
	HidesSubcommands                    // a subcommand that is not there is refused as an unknown command
	Decides                             // a limiter: the reply begins with limited, 0 or 1
	ShardChannels                       // its channels are shard channels: COMMAND INFO shows them in the place of keys
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

// SecretsFrom makes a row's Secrets of all words from one on.
func SecretsFrom(first int) func(words [][]byte, hide func(word int)) {
	return func(words [][]byte, hide func(word int)) {
		for i := first; i < len(words); i++ {
			hide(i)
		}
	}
}

// Prefix is the beginning of a word, of so many bytes at most.
func Prefix(word []byte, bytes int) string { return string(word[:min(len(word), bytes)]) }
