package snippets

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/transcript"
	"cellserver/test/peer"
)

// conversations returns the transcripts of a document. Each is preceded by empty lines, so that a
// difference is reported with its line in the document.
func conversations(t *testing.T, document string) (all []*transcript.File) {
	for _, b := range blocks(t, document) {
		if b.language != "transcript" {
			continue
		}
		f, err := transcript.Parse(b.file, []byte(strings.Repeat("\n", b.line)+b.text))
		require.NoError(t, err)
		assert.False(t, f.Advances, "%s:%d: a transcript in a document must not move the clock", b.file, b.line)
		all = append(all, f)
	}
	return all
}

// The server replies as the transcripts of the documents say. Each begins with an empty server.
func TestConversations(t *testing.T) {
	played := 0
	for _, document := range documents(t) {
		server := peer.Start(t, argumentsFor(t, document)...)
		stage := peer.Slowly(transcript.Network("tcp", server.Addr))
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

// argumentsFor returns the arguments of the server of a document's transcripts.
func argumentsFor(t *testing.T, document string) []string {
	if document == policiesPage {
		return []string{"--policies", writePolicies(t)}
	}
	return nil
}

// A redis-server replies as the transcripts that begin with @redis say.
func TestConversationsWithRedis(t *testing.T) {
	played := 0
	stage := peer.Slowly(transcript.Network("tcp", peer.StartRedis(t).Addr))
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

// empty removes the previous transcript's keys.
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
