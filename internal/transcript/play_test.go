package transcript

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// allLines is a transcript that the toy server matches, in process and on a socket.
const allLines = `# A transcript with every kind of line.
@redis

> PING
+PONG

raw "*1\r\n$4\r\nPI"
raw "NG\r\n"
+PONG
> ECHO "a\x00\"b"
"a\x00\"b"
> BAD
-"ERR no BAD "
redis: -ERR what
> TWICE
+OK
# between two replies
+OK
> MUTE
B> SUBSCRIBE
+OK
> PUBLISH "news today"
+OK
B>
["news today"]
> ECHO 1234567890
~ "\d{10}"
> QUIT
+OK
closed
> PING
+PONG
`

func parse(t *testing.T, text string) *File {
	t.Helper()
	f, err := Parse("talk.txt", []byte(text))
	require.NoError(t, err)
	return f
}

func TestPlay(t *testing.T) {
	f := parse(t, allLines)
	assert.True(t, f.Redis)
	assert.False(t, f.Advances)
	assert.Empty(t, f.Play(&toy{}))
	assert.Empty(t, f.Play(serveToy(t, &toy{})))
}

func TestStillClock(t *testing.T) {
	f := parse(t, "> CLOCK\n0\n@advance 1500ms\n> CLOCK\n1500\n@advance -2s\n> CLOCK\n-500\n")
	assert.True(t, f.Advances)
	assert.Empty(t, f.Play(&toy{}))
}

func TestRealClock(t *testing.T) {
	stage := serveToy(t, &toy{})
	start := time.Now()
	require.NoError(t, stage.Advance(20*time.Millisecond))
	assert.GreaterOrEqual(t, time.Since(start), 20*time.Millisecond)
	assert.Error(t, stage.Advance(-time.Second))
}

// On a real clock, a time in a reply may be shorter by the time that may have passed. Nothing else
// may differ.
func TestTimes(t *testing.T) {
	for _, c := range []struct {
		text, got string
		late      time.Duration
		matches   bool
	}{
		{"60s", "60", 0, true},
		{"60s", "59", 0, false},
		{"60s", "58", 2 * time.Second, true},
		{"60s", "58", 1100 * time.Millisecond, true}, // replies are rounded
		{"60s", "57", 2 * time.Second, false},
		{"60s", "61", time.Minute, false},
		{"60s", "-1", time.Hour, false},
		{"60", "59", time.Minute, false},
		{"[0, 10, 9, -1, 60s]", "[0, 10, 9, -1, 59]", time.Second, true},
		{"[0, 10, 9, -1, 60s]", "[0, 10, 8, -1, 60]", time.Second, false},
		{"[1, 60s, [1, 1, 0, 60s, 60000ms]]", "[1, 59, [1, 1, 0, 60, 59001]]", time.Second, true},
		{"[1, 60s, [1, 1, 0, 60s, 60000ms]]", "[1, 59, [1, 1, 0, 60, 58001]]", time.Second, false},
		{`["60s \" 5s", 5s]`, `["60s \" 5s", 4]`, time.Second, true},
		{`["60s \" 5s", 5s]`, `["59s \" 5s", 5]`, time.Second, false},
		{"-ERR 60s", "-ERR 60s", 0, true},
		{"+60s", "+60", time.Second, false},
	} {
		want, err := parseExpected(0, c.text)
		require.NoError(t, err)
		assert.Equal(t, c.matches, want.matches(c.got, c.late), "%s: %s after %s", c.text, c.got, c.late)
	}
}

// A transcript with times passes on a clock that cannot be stopped, or on which time passes before each call.
func TestSpaced(t *testing.T) {
	pause := func() time.Duration { return 1500 * time.Millisecond }
	f := parse(t, "> CLOCK\n1500\n> CLOCK\n3000\n@advance 1s\n> CLOCK\n5500\n")
	assert.Empty(t, f.Play(Spaced(&toy{}, pause)))
	left := parse(t, "> LEFT\n60s\n> LEFT\n60s\n")
	assert.Empty(t, left.Play(&toy{}))
	assert.Empty(t, left.Play(Spaced(&toy{}, pause)))
	assert.Len(t, parse(t, "> LEFT\n60s\n> LEFT\n60\n").Play(Spaced(&toy{}, pause)), 1)
	assert.Equal(t, "> LEFT\n60s\n", rewrite(t, "> LEFT\n60s\n", &toy{}))
}

// TestDifferences checks that every kind of difference is found at its line, in process and on a
// socket.
func TestDifferences(t *testing.T) {
	cases := []struct{ name, text, want string }{
		{"wrong", "> PING\n+PANG\n> PING\n+PONG\n", "talk.txt:2: > PING\n\twant +PANG\n\tgot  +PONG"},
		{"wrong kind", "> ECHO 5\n5\n", "talk.txt:2: > ECHO 5\n\twant 5\n\tgot  \"5\""},
		{"pattern", "> ECHO ab\n~ \"a\"\n", "talk.txt:2: > ECHO ab\n\twant ~ \"a\"\n\tgot  \"ab\""},
		{"extra", "\n> TWICE\n+OK\n", "talk.txt:2: > TWICE\n\twant silence\n\tgot  +OK"},
		{"extra like an answer to PING", "> PING\n", "talk.txt:1: > PING\n\twant silence\n\tgot  +PONG"},
		{"never heard", "B> SUBSCRIBE\n+OK\n> PUBLISH a\n+OK\n", "talk.txt:1: B> SUBSCRIBE\n\twant silence\n\tgot  [\"a\"]"},
		{"hung up", "> QUIT\n+OK\n", "talk.txt:1: > QUIT\n\twant silence\n\tgot  closed"},
		{"hung up early", "> QUIT\n+OK\n+OK\n> PING\n+PONG\n", "talk.txt:3: > QUIT\n\twant +OK\n\tgot  closed"},
		{"no reply", "> GARBLE\n+OK\n", "talk.txt:2: > GARBLE\n\twant +OK\n\tgot  no reply begins with '?'"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, stage := range []Stage{&toy{}, serveToy(t, &toy{})} {
				found := parse(t, c.text).Play(stage)
				require.Len(t, found, 1)
				assert.Equal(t, c.want, found[0].String())
			}
		})
	}
}

func TestMissingReply(t *testing.T) {
	f := parse(t, "> MUTE\n+OK\n> PING\n+PONG\n")
	found := f.Play(&toy{})
	require.Len(t, found, 1)
	assert.Equal(t, "silence", found[0].Got)

	conn, err := serveToy(t, &toy{}).Dial()
	require.NoError(t, err)
	_, err = conn.Receive(time.Millisecond)
	assert.ErrorIs(t, err, ErrSilent)
	assert.Empty(t, conn.Close())
}

func TestNoServer(t *testing.T) {
	found := parse(t, "> PING\n+PONG\n").Play(Network("unix", filepath.Join(t.TempDir(), "nosuch")))
	require.Len(t, found, 1)
	assert.Equal(t, "no error", found[0].Want)
}

func TestPlayToRedis(t *testing.T) {
	f := parse(t, "@redis\n> PING\n+PANG\nredis: +PONG\n")
	assert.Empty(t, f.PlayToRedis(&toy{}))
	assert.Len(t, f.Play(&toy{}), 1)
}

func rewrite(t *testing.T, text string, s Stage) string {
	t.Helper()
	out, err := parse(t, text).Rewrite(s)
	require.NoError(t, err)
	return string(out)
}

func TestRewriteKeepsCorrectReplies(t *testing.T) {
	assert.Equal(t, allLines, rewrite(t, allLines, &toy{}))
	assert.Equal(t, allLines, rewrite(t, allLines, serveToy(t, &toy{})))
}

func TestRewrite(t *testing.T) {
	cases := []struct{ name, text, want string }{
		{"filled in", "# why\n> TWICE\n\n# end", "# why\n> TWICE\n+OK\n+OK\n\n# end"},
		{"replaced", "> ECHO a\n# kept\n\"b\"\n", "> ECHO a\n# kept\n\"a\"\n"},
		{"added below", "> TWICE\n# kept\n+NO\n# after\n", "> TWICE\n# kept\n+OK\n+OK\n# after\n"},
		{"removed", "> PING\n+PONG\n+PONG\n# kept\n", "> PING\n+PONG\n# kept\n"},
		{"pattern that fails", "> ECHO a\n~ \"b\"\n", "> ECHO a\n\"a\"\n"},
		{"still not Redis's", "@redis\n> PING\n+X\nredis: +Y\n", "@redis\n> PING\n+PONG\nredis: +Y\n"},
		{"now as Redis's", "@redis\n> PING\n+X\nredis: +PONG\n", "@redis\n> PING\n+PONG\n"},
		{"both gone", "@redis\n> MUTE\n+X\nredis: +PONG\n", "@redis\n> MUTE\n"},
		{"hung up", "> QUIT\n", "> QUIT\n+OK\nclosed\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			once := rewrite(t, c.text, &toy{})
			assert.Equal(t, c.want, once)
			assert.Equal(t, once, rewrite(t, once, &toy{}), "a second rewrite changes the text")
		})
	}
}

func TestRewriteNeedsAllRepliesReceived(t *testing.T) {
	_, err := parse(t, "B> SUBSCRIBE\n> PUBLISH a\n").Rewrite(&toy{})
	assert.EqualError(t, err, `talk.txt:1: at the end, client B had not received ["a"]; receive it with a line "B>"`)
}

func TestCheck(t *testing.T) {
	root := t.TempDir()
	_, err := Load(root)
	assert.ErrorContains(t, err, "no transcripts")

	path := filepath.Join(root, "family", "testdata", "ping.txt")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte("> PING\n+PANG\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(root, "notes.txt"), []byte("not a transcript\n"), 0o644))
	files, err := Load(root)
	require.NoError(t, err)
	require.Len(t, files, 1)
	assert.Equal(t, "ping", files[0].Base())
	err = files[0].check(&toy{}, false)
	assert.EqualError(t, err, path+":2: > PING\n\twant +PANG\n\tgot  +PONG")

	open := func(*testing.T) Stage { return &toy{} }
	Check(t, files, open, true)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "> PING\n+PONG\n", string(text))
	files, err = Load(root)
	require.NoError(t, err)
	Check(t, files, open, false)

	require.NoError(t, os.Mkdir(filepath.Join(root, "testdata"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "testdata", "ping.txt"), nil, 0o644))
	_, err = Load(root)
	assert.ErrorContains(t, err, "two transcripts have the same name")
}

// TestEndlessReplies checks that a server that does not stop sending ends the play.
func TestEndlessReplies(t *testing.T) {
	noise := &toy{}
	peer := noise.connect(nil)
	peer.out = []byte(strings.Repeat("+OK\r\n", maxReplies+1))
	p := player{stage: noise, clients: map[string]*client{"A": {Peer: peer}}}
	got, err := p.receiveAll("A", 0)
	assert.Len(t, got, maxReplies)
	assert.Error(t, err)
}
