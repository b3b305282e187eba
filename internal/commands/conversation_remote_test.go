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

// Conversations pass on a store whose keys are in another program, unless they are marked with @memory.
func TestConversationsOnRemoteStore(t *testing.T) {
	files := slices.DeleteFunc(conversations(t), func(f *transcript.File) bool { return f.Memory != "" })
	transcript.Check(t, files, remoteStage, false)
}

// Each conversation that is marked would fail there.
func TestConversationsInMemoryDiffer(t *testing.T) {
	for _, f := range conversations(t) {
		if f.Memory != "" {
			require.NotEmpty(t, f.Play(remoteStage(t)), "%s passes without @memory", f.Base())
		}
	}
}
