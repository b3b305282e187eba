package commands_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
)

// remoteStore is a store in memory that has only the abilities of a store in another program. It fails the
// test if a step touches keys that such a store could not touch in one step.
type remoteStore struct {
	plainStore
	t testing.TB
}

func (s remoteStore) External() string { return "redis" }
func (s remoteStore) MayBlock() bool   { return true }
func (s remoteStore) View() store.View { return remoteView{s.plainStore.View(), s.t} }

type remoteView struct {
	store.View
	t testing.TB
}

func (v remoteView) Atomically(ctx context.Context, keys []store.KeyRef, all bool, steps func() error) error {
	require.False(v.t, all, "a step that may touch any key")
	for _, ref := range keys {
		require.Equal(v.t, v.Selected(), ref.Database, "a key of another database")
	}
	return v.View.Atomically(ctx, keys, false, steps)
}

// newRemoteServer returns a server over a remoteStore of so many databases.
func newRemoteServer(t testing.TB, databases int, change func(*commands.Settings)) *commandstest.Server {
	clock := store.NewStillClock(commandstest.Start)
	data := memstore.New(memstore.Options{Clock: clock, SweepEvery: -1, Databases: databases})
	s, err := commandstest.NewOver(t, remoteStore{plainStore{data}, t}, change)
	require.NoError(t, err)
	s.Clock, s.Clock = clock, clock
	return s
}

// remoteRefusals are calls that a server over a remote store refuses, and a part of the error.
var remoteRefusals = map[string]string{
	"SWAPDB 0 1":                            "the store cannot swap databases",
	"MOVE k 1":                              "ERR MOVE is not possible if the keys are in another program (--store): a step touches keys of one database only",
	"COPY k l DB 1":                         "ERR COPY is not possible if the keys are in another program (--store): a step touches keys of one database",
	"CLIENT TRACKING ON":                    "the store cannot tell of changes",
	"WAIT 1 1":                              "ERR WAIT is not possible if the keys are in another program (--store): this server is not told",
	"WAITAOF 0 1 1":                         "ERR WAITAOF is not possible if",
	"PUBLISH ch m":                          "ERR PUBLISH is not possible if the keys are in another program (--store): the message would not reach",
	"SPUBLISH ch m":                         "ERR SPUBLISH is not possible if",
	"SUBSCRIBE ch":                          "ERR SUBSCRIBE is not possible if the keys are in another program (--store): messages of clients of other",
	"PSUBSCRIBE ch":                         "ERR PSUBSCRIBE is not possible if",
	"SSUBSCRIBE ch":                         "ERR SSUBSCRIBE is not possible if",
	"OBJECT IDLETIME k":                     "the store does not know when keys were used",
	"MEMORY STATS":                          "the store does not know how much it holds",
	"SAVE":                                  "ERR nothing is saved here: the keys are in another program (--store), which saves them",
	"BGSAVE":                                "ERR nothing is saved here",
	"SHUTDOWN SAVE":                         "ERR nothing is saved here",
	"DEBUG RELOAD":                          "ERR DEBUG is not possible if the keys are in another program (--store): RELOAD is for keys in this process",
	"CONFIG SET notify-keyspace-events KEA": "the store cannot tell of changes",
}

func TestRefusalsOverRemoteStore(t *testing.T) {
	s := newRemoteServer(t, 16, func(*commands.Settings) {})
	c := s.Connect()
	require.Equal(t, "+OK\r\n", c.Do(t, "SET k v"))
	for call, want := range remoteRefusals {
		reply := c.Do(t, call)
		require.Contains(t, reply, want, call)
		require.Equal(t, byte('-'), reply[0], call)
	}
	require.Equal(t, "-ERR DB index is out of range\r\n", c.Do(t, "SELECT 16"))
	info := c.Do(t, "INFO everything")
	for _, field := range []string{"used_memory_dataset:", "used_memory_overhead:", "expired_keys:", "db0:"} {
		require.NotContains(t, info, field)
	}
	require.Contains(t, info, "\r\n# Store\r\nstore_fails:error\r\n")
	require.Equal(t, "$1\r\nv\r\n", c.Do(t, "GET k"), "nothing has removed it")
}

// The other commands work.
func TestCommandsOverRemoteStore(t *testing.T) {
	s := newRemoteServer(t, 16, func(*commands.Settings) {})
	c := s.Connect()
	for _, step := range [][2]string{
		{"SET k v", "+OK\r\n"}, {"COPY k l", ":1\r\n"}, {"COPY k m DB 0", ":1\r\n"}, {"RENAME l n", "+OK\r\n"},
		{"DBSIZE", ":3\r\n"}, {"UNSUBSCRIBE", "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n"},
		{"PUBSUB NUMPAT", ":0\r\n"}, {"CONFIG RESETSTAT", "+OK\r\n"}, {"FLUSHDB", "+OK\r\n"}, {"DBSIZE", ":0\r\n"},
		{"SELECT 1\r\nSET k v\r\nFLUSHALL\r\nDBSIZE", "+OK\r\n+OK\r\n+OK\r\n:0\r\n"},
	} {
		require.Equal(t, step[1], c.Do(t, step[0]), step[0])
	}
	one := newRemoteServer(t, 1, func(*commands.Settings) {}).Connect()
	require.Equal(t, "+OK\r\n", one.Do(t, "SELECT 0"))
	require.Contains(t, one.Do(t, "SELECT 1"), "a cluster has only database 0")
	require.Contains(t, one.Do(t, "SELECT -1"), "-ERR ")
}

// Calls that touch keys that are not named, or keys of several databases, are refused when they are
// queued, and the transaction is discarded.
func TestTransactionsOverRemoteStore(t *testing.T) {
	s := newRemoteServer(t, 16, func(*commands.Settings) {})
	c := s.Connect()
	for _, call := range []string{
		"KEYS *", "SCAN 0", "DBSIZE", "RANDOMKEY", "FLUSHDB", "FLUSHALL", "SWAPDB 0 1", "SELECT 0",
	} {
		name, _, _ := strings.Cut(call, " ")
		c.Do(t, "MULTI")
		require.Contains(t, c.Do(t, call), "-ERR "+name+" is not possible in a transaction if the keys are in another", call)
		require.Contains(t, c.Do(t, "EXEC"), "-EXECABORT ", call)
	}
	c.Do(t, "MULTI")
	for _, call := range []string{"SET k v", "COPY k l", "CL.THROTTLE t 1 1 1", "INFO server", "MOVE k 1", "GET l"} {
		require.Equal(t, "+QUEUED\r\n", c.Do(t, call), call)
	}
	reply := c.Do(t, "EXEC")
	require.Contains(t, reply, "*6\r\n+OK\r\n:1\r\n*5\r\n:0\r\n")
	require.Contains(t, reply, "-ERR MOVE is not possible")
	require.True(t, strings.HasSuffix(reply, "$1\r\nv\r\n"), reply)

	require.Equal(t, "+OK\r\n+OK\r\n+OK\r\n+QUEUED\r\n", c.Do(t, "WATCH k\r\nSELECT 1\r\nMULTI\r\nGET k"))
	require.Contains(t, c.Do(t, "EXEC"), "-EXECABORT Transaction discarded because it watches a key of another database.")
	require.Equal(t, "-ERR EXEC without MULTI\r\n", c.Do(t, "EXEC"))
	require.Equal(t, "+OK\r\n+QUEUED\r\n*1\r\n$-1\r\n", c.Do(t, "MULTI\r\nGET k\r\nEXEC"), "the watch has ended")
}

// watchedChanges are calls between WATCH k and EXEC, after SET k v, and whether EXEC finds a change if
// the store announces none.
var watchedChanges = []struct {
	before, between string
	changed         bool
}{
	{"SET k v", "", false},
	{"SET k v", "GET k", false},
	{"SET k v", "SET other v", false},
	{"SET k v", "SET k w", true},
	{"SET k v", "DEL k", true},
	{"SET k v", "SET k ''", true},
	{"SET k v", "SET k v", false},               // a store that announces changes finds it
	{"SET k v", "SET k w\r\nSET k v", false},    // and this change
	{"SET k v", "EXPIRE k 100", false},          // and this change
	{"SET k v", "PEXPIRE k 1\r\n@expire", true}, // it is gone
	{"", "SET k v", true},
	{"", "SET k v\r\nDEL k", false},
	{"SET k 5", "INCR k", true},
	{"SET k 5", "SET k 05", true},
	{"CL.THROTTLE k 5 1 60", "CL.THROTTLE k 5 1 60", true},
	{"CL.THROTTLE k 5 1 60", "CL.THROTTLE k 5 1 60 1 PEEK", false},
	{"CL.SLIDINGLOG k 5 60", "CL.SLIDINGLOG k 5 60", true},
	{"CL.QUOTA k 5 DAY", "CL.QUOTA k 5 DAY", true},
	{"CL.ACQUIRE k 5 60 a", "CL.ACQUIRE k 5 60 b", true},
	{"CL.ACQUIRE k 5 60 a", "CL.HOLDERS k", false},
	{"CL.FIXED k 5 60", "SET k v", true},
}

// Without notifications, WATCH compares a key's content with its earlier content.
func TestWatchComparesContents(t *testing.T) {
	for _, of := range watchedChanges {
		s := newRemoteServer(t, 16, func(*commands.Settings) {})
		c, other := s.Connect(), s.Connect()
		if of.before != "" {
			other.Do(t, of.before)
		}
		require.Equal(t, "+OK\r\n", c.Do(t, "WATCH k"))
		require.Contains(t, c.Do(t, "INFO clients"), "watching_clients:1\r\ntotal_watched_keys:1\r\n")
		for call := range strings.SplitSeq(of.between, "\r\n") {
			switch call {
			case "":
			case "@expire":
				require.NoError(t, s.Advance(time.Second))
			default:
				require.NotContains(t, other.Do(t, call), "-ERR", call)
			}
		}
		want := "+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n"
		if of.changed {
			want = "+OK\r\n+QUEUED\r\n*-1\r\n"
		}
		require.Equal(t, want, c.Do(t, "MULTI\r\nPING\r\nEXEC"), "%s; WATCH k; %s", of.before, of.between)
		require.Contains(t, c.Do(t, "INFO clients"), "watching_clients:0\r\n")
	}
}

// The content that EXEC has to read is bounded. A key beyond the bound counts as changed, because
// the client may continue despite the error.
func TestContentsOfWatchedKeysAreBounded(t *testing.T) {
	s := newRemoteServer(t, 16, func(*commands.Settings) {})
	c := s.Connect()
	c.Do(t, "SET small v")
	for n := range 16 {
		name := fmt.Sprint("large", n)
		require.NoError(t, c.Send(commandstest.Encode([]string{"SET", name, strings.Repeat("v", 1<<20)})))
		require.Equal(t, "+OK\r\n", c.Output())
		require.Equal(t, "+OK\r\n", c.Do(t, "WATCH "+name))
	}
	require.Equal(t, "-ERR too many keys are watched\r\n", c.Do(t, "WATCH small"))
	require.Equal(t, "+OK\r\n+QUEUED\r\n*-1\r\n", c.Do(t, "MULTI\r\nPING\r\nEXEC"))
	require.Equal(t, "+OK\r\n", c.Do(t, "WATCH small"), "the bound is that of one transaction")
}
