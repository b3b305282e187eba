package commands

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/remotetest"
	"cellserver/internal/transcript"
)

// notRemote lists the conversations that show something else if the keys are in another program, with
// what that is.
var notRemote = map[string][]string{
	"an integer is a throttle key and a counter": {"incr", "set"},
	"publishing is refused": {
		"acl", "client", "client-reply", "psubscribe", "publish", "pubsub", "punsubscribe", "spublish", "ssubscribe",
		"subscribe", "sunsubscribe", "unsubscribe",
	},
	"there are no notifications of changes": {
		"config-notify", "config-notify-limiters", "config-notify-own", "config-notify-redis8", "restore",
		"client-tracking", "client-tracking-prefixes", "client-tracking-redirect", "set-conditions",
	},
	"databases cannot be swapped, nor keys moved between them": {"copy", "move", "swapdb", "watch", "watch-swapdb"},
	"a transaction has one database":                           {"exec", "exec-connection", "monitor"},
	"the keys take no memory of this process": {"config-maxmemory", "debug", "info", "info-keyspace",
		"memory"},
	"it is not known when a key was used": {"object", "object-idletime"},
	"another program keeps the keys, and its replicas": {"bgrewriteaof", "bgsave", "save", "shutdown", "wait",
		"waitaof"},
}

// All other conversations pass on a store whose keys are in another program.
func TestConversationsOnRemoteStore(t *testing.T) {
	excluded := map[string]bool{}
	for _, names := range notRemote {
		for _, name := range names {
			excluded[name] = true
		}
	}
	files := slices.DeleteFunc(conversations(t), func(f *transcript.File) bool {
		name := f.Base()
		defer delete(excluded, name)
		return excluded[name]
	})
	require.Empty(t, excluded, "there are no such conversations")
	transcript.Check(t, files, func(t *testing.T) transcript.Stage {
		clock := store.NewStillClock(clockStart)
		backend := remotetest.New(clock, 16)
		s, err := newServerOver(t, remote.New(remote.Options{
			Executor: backend, Keyspace: backend, Clock: backend, AllowFlush: true,
		}), func(*Settings) {})
		require.NoError(t, err)
		s.clock = clock
		return s
	}, false)
}
