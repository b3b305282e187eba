package remote

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/server"
	"cellserver/internal/store"
	"cellserver/internal/store/remote/backend"
	"cellserver/test/peer"
)

// everyKindOfCall is a call of each operation of a view, some in several ways.
const everyKindOfCall = `CL.THROTTLE t 5 1 60
CL.THROTTLE t 5 1 60 1 UPTO
CL.FIXED f 5 60
CL.SLIDING s 5 60
CL.SLIDINGLOG l 5 60
CL.QUOTA q 5 90s
CL.ALL 2 FIXED f 5 60 1 THROTTLE t 5 1 60 1
CL.ALL 2 FIXED f 5 60 1 FORCE ACQUIRE h 5 60 third 1
CL.ACQUIRE h 5 60 holder
CL.ACQUIRE h 5 60 another
CL.HOLDERS h
CL.RELEASE h holder
CL.INSPECT l
SET v 1 EX 100
SET v 2 KEEPTTL
SET v 3 GET
SETEX v 100 4
MSET v 1 w 2
MSETNX v 1 x 2
MGET v w none
GET v
GETRANGE v 0 0
STRLEN v
APPEND v 5
INCR v
INCRBYFLOAT w 1.5
EXPIRE v 100 NX
PTTL v
PERSIST v
EXISTS v w
TOUCH v w
TYPE f
DUMP f
MEMORY USAGE l
COPY v x
RENAME x y
KEYS *
SCAN 0 TYPE string
DBSIZE
RANDOMKEY
DEL v y
UNLINK w
SELECT 1
SET v 1
SELECT 0
FLUSHALL`

// ownCommands are commands that any client may call, and the test's own commands.
var ownCommands = []string{"hello", "auth", "ping", "acl|setuser", "acl|log", "info", "client|setname",
	"client|setinfo",
	"client|list", "config|set", "config|resetstat", "quit", "reset", "debug", "shutdown", "command"}

// dialStore returns a client of a cellserver over a store.
func dialStore(t *testing.T, s store.Store) *redis.Client {
	instance, err := commands.New(commands.Config{Store: s})
	require.NoError(t, err)
	settings := server.NewSettings()
	settings.Transport = string(server.Goroutines)
	cellserver, err := server.New(instance, server.Config{Settings: settings})
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- cellserver.Serve(listener) }()
	c := peer.Client(&redis.Options{Addr: listener.Addr().String(), Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, PoolSize: 1})
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		require.NoError(t, cellserver.Shutdown(context.Background()))
		require.ErrorIs(t, <-served, server.ErrClosed)
	})
	return c
}

// Calls of cellserver's clients need exactly the rights of the documented rule.
func TestRightsAreExact(t *testing.T) {
	s := start(t)
	grant(t, s.Addr, "limits", "secret", backend.Rule("cl:"))
	data := newStore(t, "redis://limits:secret@"+s.Addr, false)
	data.AllowFlush = true
	c := dialStore(t, data)
	for line := range strings.Lines(everyKindOfCall) {
		if err := c.Do(t.Context(), words(line)...).Err(); err != nil {
			assert.ErrorIs(t, err, redis.Nil, line)
		}
	}
	assert.Empty(t, peer.Ask(t, s.Addr, "acl", "log"), "no call was refused")
	called := map[string]bool{}
	stats := fmt.Sprint(peer.Ask(t, s.Addr, "info", "commandstats"))
	for _, found := range regexp.MustCompile(`cmdstat_([a-z|]+):`).FindAllStringSubmatch(stats, -1) {
		called[found[1]] = true
	}
	called["pttl"] = true   // before Redis 7.0, in place of PEXPIRETIME
	called["dbsize"] = true // if there is no prefix
	rule := strings.Fields(backend.Rule("cl:"))
	for _, word := range rule {
		right, granted := strings.CutPrefix(word, "+")
		if granted && right != "asking" && !strings.HasPrefix(right, "cluster") { // there is no cluster here
			assert.True(t, called[right], "%s is granted, and is never called", right)
		}
	}
	for name := range called {
		assert.True(t, slices.Contains(rule, "+"+name) || slices.Contains(ownCommands, name), "%s is called", name)
	}
}

// SET, DEL and commands about names work on a list that another program has made. Other commands
// refuse it.
func TestKeysOfOtherTypes(t *testing.T) {
	s := start(t)
	c := dialStore(t, newStore(t, "redis://"+s.Addr, false))
	list := func() {
		peer.Ask(t, s.Addr, "del", "cl:list")
		peer.Ask(t, s.Addr, "rpush", "cl:list", "a")
	}
	list()
	for _, line := range []string{
		"TYPE list", "TTL list", "EXPIRE list 10", "RENAME list other", "SET list v NX", "GET list",
		"CL.THROTTLE list 5 1 60",
	} {
		err := c.Do(t.Context(), words(line)...).Err()
		assert.ErrorContains(t, err, "WRONGTYPE", line)
	}
	_, err := c.TxPipelined(t.Context(), func(p redis.Pipeliner) error { return p.Del(t.Context(), "list").Err() })
	assert.ErrorContains(t, err, "WRONGTYPE")
	assert.Equal(t, []any{nil}, c.MGet(t.Context(), "list").Val())
	assert.Equal(t, []string{"list"}, c.Keys(t.Context(), "l*").Val())
	assert.Equal(t, int64(1), c.Exists(t.Context(), "list").Val())
	assert.Equal(t, int64(1), c.DBSize(t.Context()).Val())
	assert.NoError(t, c.Set(t.Context(), "list", "v", 0).Err())
	list()
	assert.NoError(t, c.MSet(t.Context(), "list", "v").Err())
	list()
	assert.Equal(t, int64(1), c.Del(t.Context(), "list").Val())
}

// words returns the words of a call.
func words(line string) (all []any) {
	for word := range strings.FieldsSeq(line) {
		all = append(all, word)
	}
	return all
}
