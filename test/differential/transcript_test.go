package differential

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/transcript"
	"cellserver/test/peer"
)

// families is the directory with the transcripts, in a folder for each family.
const families = "../../internal/commands"

// policies returns the path of the policies that the transcripts use.
func policies(t *testing.T) string {
	path, err := filepath.Abs(families + "/policy/testdata/policies.yaml")
	require.NoError(t, err)
	return path
}

func load(t *testing.T, wanted func(f *transcript.File) bool) (files []*transcript.File) {
	all, err := transcript.Load(families)
	require.NoError(t, err)
	for _, f := range all {
		if wanted(f) {
			files = append(files, f)
		}
	}
	return files
}

// The binary replies as the command table does in process. Transcripts that move the clock are
// played in process only.
func TestConversationsWithTheBinary(t *testing.T) {
	files := load(t, func(f *transcript.File) bool { return !f.Advances })
	require.GreaterOrEqual(t, len(files), 18)
	for _, f := range files {
		t.Run(f.Base(), func(t *testing.T) {
			t.Parallel()
			server := peer.Start(t, "--policies", policies(t))
			for _, d := range f.Play(stage(server)) {
				t.Error(d)
			}
		})
	}
}

// The binary gives the same replies if its keys are in a redis-server. The servers of all transcripts
// share one redis-server, each with names of its own.
func TestConversationsOverAStore(t *testing.T) {
	files := load(t, func(f *transcript.File) bool { return !f.Advances && f.Memory == "" })
	require.GreaterOrEqual(t, len(files), 18)
	store := peer.StartRedis(t)
	t.Run("all", func(t *testing.T) { // returns when all have ended: the store must not stop before
		for _, f := range files {
			t.Run(f.Base(), func(t *testing.T) {
				t.Parallel()
				server := peer.Start(t, "--store", "redis://"+store.Addr, "--store-prefix", f.Base()+":",
					"--store-allow-flush", "yes", "--store-timeout", "30000", "--policies", policies(t))
				for _, d := range f.Play(stage(server)) {
					t.Error(d)
				}
			})
		}
	})
}

// stage returns a server for transcripts, on the transport and with the TLS of Start. The first
// connection is the first client.
func stage(server *peer.Server) transcript.Stage {
	return peer.Slowly(transcript.Dialer(func() (transcript.Conn, error) {
		conn, err := peer.Dial(server.Addr)
		if err != nil {
			return nil, err
		}
		return conn, conn.Handshake()
	}))
}

// A redis-server replies as the transcripts that are marked with @redis say.
func TestConversationsWithRedis(t *testing.T) {
	files := load(t, func(f *transcript.File) bool { return f.Redis })
	require.GreaterOrEqual(t, len(files), 12)
	for _, f := range files {
		t.Run(f.Base(), func(t *testing.T) {
			t.Parallel()
			server := peer.StartRedis(t)
			for _, d := range f.PlayToRedis(stage(server)) {
				t.Error(d)
			}
		})
	}
}

func TestConversationsFindAWrongReply(t *testing.T) {
	f, err := transcript.Parse("planted.txt", []byte("> ECHO a\n\"b\"\n> PING\n+PONG\n"))
	require.NoError(t, err)
	server := peer.Start(t)
	differences := f.Play(stage(server))
	require.Len(t, differences, 1)
	assert.Equal(t, 2, differences[0].Line)
}
