// Package command defines what a command is. All commands of the server form a Table, and a Command
// is one row of it: the name, the grammar, the manual and the code of the command. In all packages,
// "row" means this entry of a command in the table, as distinct from a Call, which is one call of the
// command by a client. The grammar binds the words of a call to the arguments of the row.
//
// An event loop serves its sessions one after the other. What it does for one session before it
// serves the next is a turn (see package session), and Cost says how much of a turn a call takes.
//
// The package does not depend on sessions.
//
// To add a command, write a row in its family's folder below internal/commands, add it to the
// family's list, and write a transcript for it in the testdata of that folder.
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
	Category   string   // ACL categories, separated by spaces; "" for the category of the group
	Tips       []string // hints for clients and proxies

	Flags  Flags     // Redis's: COMMAND INFO shows them, and ACL categories follow from them
	Cost   Cost      // what a call costs the event loop
	Effort *Effort   // further work of a call in a transaction; nil if there is none
	Traits Traits    // how a call is scheduled
	Admit  Admission // whether a call is refused, if its flags do not say it

	Args     []Arg
	AnyMore  bool  // more words are allowed, and ignored
	Min      int   // words of the shortest call, if Redis's number is not the one of the grammar
	OverLong error // the error for a long call (see resp.LongCall); nil if long calls are allowed
	// Secrets calls hide with the index of each word that SLOWLOG and MONITOR must not show; nil if
	// there are none. The table finds calls that the call asks about.
	Secrets func(t *Table, words [][]byte, hide func(word int))

	// KeyAccess describes how the command uses its keys, in the words of COMMAND INFO's key specs:
	// RO (the key is read), RW (read and changed), OW (overwritten) or RM (removed), followed by
	// what happens to the value: ACCESS (it is returned, or affects the reply), UPDATE (changed),
	// INSERT (data is added), DELETE (data is removed). EXISTS is "RO": it uses no value. GET is
	// "RO ACCESS", CL.THROTTLE "RW ACCESS UPDATE", DEL "RM DELETE". If keys differ, commas separate
	// them: COPY is "RO ACCESS, OW UPDATE".
	KeyAccess string
	Keys      KeyRules     // rules for keys that Args and KeyAccess cannot express
	Channels  ChannelWords // which words name channels, for the rules of users
	Events    Events       // the keyspace events of its changes

	// NotExternal says why the command is refused if the store is a store.External; "" if it is not refused.
	NotExternal string

	Run  func(c *Call) error
	Subs []*Command // of a container such as CLIENT; their names are "client|id"

	derived
}

// Admission is the code of the few rows whose calls are not refused, before they are made, by the flags of the
// row alone. The words of the call are not bound yet.
type Admission struct {
	// Flags returns the flags that a call has in place of the row's.
	Flags func(c *Call) Flags
	// Refuse returns the error of a call that must not be made now, otherwise nil. It is asked while a hook is in
	// force.
	Refuse func(c *Call) error
	// Refused returns the error that the client gets for a call that is refused because of err.
	Refused func(c *Call, err error) error
	// UnknownSub returns the error of a call of a container that has no such subcommand.
	UnknownSub func(words [][]byte) error
}

// KeyRules describe the positions of a call's keys, and what the call does with them, where these
// do not follow from Args and KeyAccess. Most rows have none.
type KeyRules struct {
	// Find appends the indexes of the keys of a call, and returns false if its words are invalid.
	Find    func(at []int, words [][]byte) ([]int, bool)
	First   int // with Find: the index of the first key, 0 if it varies; see also Call.Repeats
	CountAt int // with Find: the index of the word that says how many keys follow it, 0 for none
	Step    int // with CountAt: words from one key to the next

	// Rights appends what the key patterns of users are checked against, in place of the keys.
	Rights func(keys, words [][]byte, snapshot any) [][]byte
	// Touched appends the names of the keys that a call uses, if its words do not name them. They follow
	// from state that may change. Snapshot returns the present state. A call is made with the snapshot
	// by which its rights were checked, and a transaction with that by which it has found the keys of its
	// calls.
	Touched  func(keys, words [][]byte, snapshot any) [][]byte
	Snapshot func() any
	// OneStep reports, of a row with several keys, whether a call uses the store once: see MakesOneStep.
	OneStep func(words [][]byte) bool

	// Call returns the row of another call, which the words after the name are; nil if they are none. The rights that
	// it needs are needed in addition to the right to the command.
	Call func(words [][]byte) *Command

	Access func(words [][]byte) string // the KeyAccess of one call; nil if it is the same for all
	Peeks  func(c *Call) bool          // of a limiter: whether a call, whose words are bound, changes nothing
	Takes  func(c *Call) bool          // of a limiter: whether a bound call can only take, and frees nothing for others
}

// Events are the keyspace events of a command, several of them separated by spaces. By default the
// event of a change has the command's name, and the event of a removal is "del".
type Events struct {
	Change   string
	ChangeOf func(c *Call) string // Change, where it depends on the call
	Removal  string
	Replaces bool // a change of a key replaces it, so it is also a new key
}

// derived holds the fields that a table computes for its rows. It is empty in the rows that
// families list.
type derived struct {
	Parent   *Command     // the container of a subcommand
	Number   int          // of the row in its table
	Grammar  grammar      // of Args
	FirstKey int          // the index of the first key, 0 if there is none or it varies
	access   []acl.Access // KeyAccess, as the rules of users see it
	oneStep  int          // see MakesOneStep
	// NotInMulti is the error of a call in a transaction, with NoMulti.
	NotInMulti error
}

// Flags are the flags that Redis publishes for a command.
type Flags uint32

const (
	Write     Flags = 1 << iota // it may change a key
	ReadOnly                    // it reads keys and changes none
	DenyOOM                     // it may need memory, so it may reply with an OOM error
	Admin                       // administration
	PubSub                      // uses channels
	NoScript                    // Redis does not let scripts call it
	Loading                     // answered while the keys of an earlier run are read
	Stale                       // answered by a replica without its master
	Fast                        // takes a time that does not depend on what is stored
	NoAuth                      // answered before AUTH
	AllowBusy                   // answered while Redis runs a script
	Dangerous                   // in the ACL category @dangerous
	Unlogged                    // not in SLOWLOG, which has the calls of the transaction instead
	NoMulti                     // not allowed in a transaction
)

// Cost is the cost of a call for the event loop that makes it. It is cellserver's own: Redis's Fast
// flag is published as an ACL category, and does not always agree with the cost here.
type Cost uint8

const (
	Bounded   Cost = iota // up to half a turn, such as INFO
	Constant              // about a microsecond, and as much again for each few words
	Unbounded             // grows with keys or clients, so a goroutine of its own makes the call
)

// Traits describe how a call is scheduled, and other properties of a command that sessions use. A
// subcommand has its container's traits too.
type Traits uint32

const (
	Unqueued        Traits = 1 << iota // made at once in a transaction, not queued
	AllowedFull                        // ends a transaction, so it is allowed although memory is full
	SelectsDatabase                    // selects the database of the calls after it
	SwapsDatabases                     // swaps two databases
	AnyKey                             // may touch any key: a transaction with it locks all keys
	WalksKeys                          // reads every key
	ValueSized                         // its cost grows with the values of its keys
	Sessionless                        // needs no session, although it has no keys
	WhileSubscribed                    // allowed in RESP2 while the client is subscribed
	KeepsCaching                       // CLIENT CACHING before it still applies to the next call, as after any CLIENT
	NamesArguments                     // errors name the argument at fault, and integers are written as for redis-cell
	Decides                            // a limiter: the reply begins with limited, 0 or 1
	ShardChannels                      // has shard channels, which COMMAND INFO shows as if they were keys
	SeveralSteps                       // may use the store several times in a call, although it has one key
)

// needsAt is the lowest bit of Traits for the abilities of the store that a row needs.
const needsAt = 24

// Needs returns the trait of a row that needs abilities of the store. If the store lacks one of
// them, calls of the row are refused.
func Needs(abilities store.Abilities) Traits { return Traits(abilities) << needsAt }

// Effort is the work (see Call.Work) of a call in a transaction, where it does not follow from the number of its words
// and the values of its keys.
type Effort struct {
	Fixed   func(words [][]byte) int              // in addition to the bytes that the call copies
	PerByte int                                   // of each byte that the call copies, 0 for 1
	Creates func(words [][]byte, longest int) int // bytes that a call may create, of values up to longest
	Reads   func(words [][]byte, size int) int    // bytes that a call reads of a value of that size
	Sized   func(words [][]byte) bool             // whether a call is ValueSized; nil if all calls are
}

// Tips that several rows share. They tell a proxy to which shards of a cluster to send a command,
// and how to join the replies; or they state that the same call may have different replies.
const AllShards = "request_policy:all_shards"

var (
	SeveralShards = []string{"request_policy:multi_shard", "response_policy:agg_sum"}
	Varying       = []string{"nondeterministic_output"}
)

// flagNames are the names that COMMAND INFO shows, in Redis's order. Dangerous is missing: it shows as
// a category alone.
var flagNames = []struct {
	flag Flags
	name string
}{
	{Write, "write"}, {ReadOnly, "readonly"}, {DenyOOM, "denyoom"}, {Admin, "admin"}, {PubSub, "pubsub"},
	{NoScript, "noscript"},
	{Loading, "loading"}, {Stale, "stale"}, {Unlogged, "skip_slowlog"}, {Fast, "fast"}, {NoAuth, "no_auth"},
	{NoMulti, "no_multi"}, {AllowBusy, "allow_busy"},
}

// Upper returns a command's name as the manual writes it: CLIENT ID.
func (row *Command) Upper() string { return strings.ToUpper(strings.ReplaceAll(row.Name, "|", " ")) }

// SecretsFrom returns the Secrets of a row whose words are secret from the index first on.
func SecretsFrom(first int) func(t *Table, words [][]byte, hide func(word int)) {
	return func(_ *Table, words [][]byte, hide func(word int)) {
		for i := first; i < len(words); i++ {
			hide(i)
		}
	}
}

// SecretsOfCall returns the Secrets of a row that asks about another call, whose words begin at the index first. If
// that call has no row, its name may be AUTH misspelled, so all words after the name are secret.
func SecretsOfCall(first int) func(t *Table, words [][]byte, hide func(word int)) {
	return func(t *Table, words [][]byte, hide func(word int)) {
		secrets := SecretsFrom(1)
		if row := t.Find(words[first:]); row != nil {
			secrets = row.Secrets
		}
		if secrets != nil {
			secrets(t, words[first:], func(word int) { hide(first + word) })
		}
	}
}

// Prefix returns the first bytes of a word, or all of it if it is shorter.
func Prefix(word []byte, bytes int) string { return string(word[:min(len(word), bytes)]) }
