package snippets

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/transcript"
	"cellserver/test/peer"
)

// conversations are the blocks of a document that internal/transcript can play. What is before a
// block is kept as empty lines, so that a difference is reported with its line in the document.
func conversations(t *testing.T, document string) (all []*transcript.File) {
	for _, b := range blocks(t, document) {
		if b.language != "transcript" {
			continue
		}
		f, err := transcript.Parse(b.file, []byte(strings.Repeat("\n", b.line)+b.text))
		require.NoError(t, err)
		assert.False(t, f.Advances, "%s:%d: a reader's clock cannot be moved", b.file, b.line)
		all = append(all, f)
	}
	return all
}

// Every conversation in a document is what the binary says, each from an empty server on.
func TestConversations(t *testing.T) {
	played := 0
	for _, document := range documents(t) {
		server := peer.Start(t)
		stage := transcript.Network("tcp", server.Addr)
		for _, f := range conversations(t, document) {
			played++
			empty(t, stage)
			for _, d := range f.Play(stage) {
				t.Error(d)
			}
		}
	}
	assert.GreaterOrEqual(t, played, 25)
}

// What a document says of Redis, a redis-server says.
func TestConversationsWithRedis(t *testing.T) {
	played := 0
	stage := transcript.Network("tcp", peer.StartRedis(t).Addr)
	for _, document := range documents(t) {
		for _, f := range conversations(t, document) {
			if !f.Redis {
				continue
			}
			played++
			empty(t, stage)
			for _, d := range f.PlayToRedis(stage) {
				t.Error(d)
			}
		}
	}
	assert.GreaterOrEqual(t, played, 8)
}

// empty removes what the conversation before has left.
func empty(t *testing.T, stage transcript.Stage) {
	flush, err := transcript.Parse("flush", []byte("> FLUSHALL\n+OK\n"))
	require.NoError(t, err)
	require.Empty(t, flush.Play(stage))
}

func TestConversationsFindAWrongReply(t *testing.T) {
	b := parseBlocks("planted.md", "# Title\n\n```transcript\n> PING\n+PING\n```\n")[0]
	f, err := transcript.Parse(b.file, []byte(strings.Repeat("\n", b.line)+b.text))
	require.NoError(t, err)
	differences := f.Play(transcript.Network("tcp", peer.Start(t).Addr))
	require.Len(t, differences, 1)
	assert.Equal(t, 5, differences[0].Line)
}
