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
	"an integer is a throttle key and a counter": {"incr-limiter", "set-limiter"},
	"publishing is refused, because clients of other cellservers would not get the messages": {
		"acl-channels", "client-reply-messages", "exec-subscribe", "psubscribe", "publish", "pubsub", "punsubscribe",
		"spublish", "ssubscribe", "subscribe", "sunsubscribe", "unsubscribe",
	},
	"there are no notifications of changes": {
		"client-tracking", "client-tracking-info", "client-tracking-prefixes", "client-tracking-redirect",
		"config-notify", "config-notify-limiters", "config-notify-own", "config-notify-redis8", "exec-tracking",
		"restore-events", "set-conditions-tracking",
	},
	"a step touches keys of one database": {
		"copy-database", "move", "swapdb", "watch-swapdb",
	},
	"a transaction has one database": {
		"exec-select", "monitor-select",
	},
	"keys take no memory of this process, so new ones are not refused while it is full": {
		"config-maxmemory-limiters",
	},
	"keys are not counted, and their memory is not known": {
		"info-keyspace", "info-keyspace-limiters", "memory-stats",
	},
	"it is not known when a key was used": {
		"object-idletime", "object-idletime-redis",
	},
	"another program saves the keys": {
		"bgrewriteaof", "bgsave", "debug-reload", "save", "shutdown-save",
	},
	"another program knows its replicas, and this one can only be asked to wait for them": {
		"client-unblock", "wait", "waitaof",
	},
}

// excludedFromRemote returns the names of these conversations.
func excludedFromRemote() map[string]bool {
	excluded := map[string]bool{}
	for _, names := range notRemote {
		for _, name := range names {
			excluded[name] = true
		}
	}
	return excluded
}

// remoteStage returns a server whose keys are in another store, with a clock that stands still.
func remoteStage(t *testing.T) transcript.Stage {
	clock := store.NewStillClock(clockStart)
	backend := remotetest.New(clock, 16)
	s, err := newServerOver(t, remote.New(remote.Options{
		Executor: backend, Keyspace: backend, Clock: backend, AllowFlush: true,
	}), func(*Settings) {})
	require.NoError(t, err)
	s.clock = clock
	return s
}

// All other conversations pass on a store whose keys are in another program.
func TestConversationsOnRemoteStore(t *testing.T) {
	excluded := excludedFromRemote()
	files := slices.DeleteFunc(conversations(t), func(f *transcript.File) bool {
		name := f.Base()
		defer delete(excluded, name)
		return excluded[name]
	})
	require.Empty(t, excluded, "there are no such conversations")
	transcript.Check(t, files, remoteStage, false)
}

// Each conversation that is excluded would fail there.
func TestExcludedConversationsDiffer(t *testing.T) {
	excluded := excludedFromRemote()
	for _, f := range conversations(t) {
		if excluded[f.Base()] {
			require.NotEmpty(t, f.Play(remoteStage(t)), "%s need not be excluded", f.Base())
		}
	}
}
