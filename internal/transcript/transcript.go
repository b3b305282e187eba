// Package transcript plays transcripts against a server, and rewrites them.
//
// A transcript is a text file with what clients send and what the server replies. It documents the
// protocol, and it is a test. The same transcript is played to the command table with a still clock
// (in process), to the real binary (over a socket), and to a real redis-server if everything in it
// is Redis's.
//
//	@redis                              a redis-server gives the same replies
//
// With @redis8 instead, Redis 8.4 or later gives the same replies. It is not installed everywhere;
// the file records its replies.
//
//	@memory keys are not counted        if the keys are in another program, replies differ, for this reason
//
//	# Comments and blank lines are kept when the file is rewritten.
//	> SET greeting "hello\r\n"          client A sends a command, split into words as an inline command is
//	+OK                                 and expects this reply; without a line it expects silence
//	> GET nosuch
//	nil
//	> TIME
//	~ \["\d{10}", "\d{1,6}"\]           a Go regexp for the complete line, for a reply that varies
//	> BAD
//	-"ERR unknown command 'BAD', with args beginning with: "
//	> HELP
//	-ERR try COMMAND DOCS
//	redis: -ERR unknown command         the reply of a redis-server, where it differs on purpose
//	@advance 1500ms                     advances the clock
//	B> SUBSCRIBE news                   client B, on a connection of its own
//	["subscribe", "news", 1]
//	> PUBLISH news hello
//	1
//	> TTL session
//	100s                                the integer 100, of seconds (100ms: of milliseconds): with a clock
//	                                    that cannot be stopped, it may be less
//	B>                                  B sends nothing, and receives
//	["message", "news", "hello"]
//	raw "*1\r\n$4\r\nPI"                client A sends these bytes, quoted as in Go (B: B raw "...")
//	raw "NG\r\n"
//	+PONG
//	> QUIT
//	+OK
//	closed                              the server has closed the connection; A connects again to send more
//
// The explanations on the right are for this page only: a comment has a line of its own. Directives
// other than @advance precede the first step. At the end of the file, every client must be between
// two commands and connected: on a socket each is sent a final PING, whose reply proves that the
// server has sent nothing else.
//
// [ReadReply] explains the format of replies.
package transcript

import (
	"regexp"
	"time"
)

// File is a transcript.
type File struct {
	Name     string // as given to Parse; differences begin with it
	Redis    bool   // @redis: it can be played to a redis-server
	Redis8   bool   // @redis8: it can be played to Redis 8.4 or later
	Memory   string // @memory: why it differs if the keys are in another program; "" if it does not
	Advances bool   // it advances the clock, so that with a real clock it takes time

	lines []string // the original text; a rewrite changes only its replies
	steps []step
}

// step is what a client sends and the replies that it expects, or an @advance.
type step struct {
	line    int    // index in File.lines
	client  string // "A" to "Z"; "" for @advance
	send    []byte // nil to receive only
	advance time.Duration
	replies []reply
}

// reply is the expected reply, and redis-server's if it differs.
type reply struct {
	ours  expected
	redis *expected
}

// expected is the line of a reply: the reply as ReadReply formats it, or a pattern for that.
type expected struct {
	line    int // index in File.lines
	text    string
	pattern *regexp.Regexp // nil if text is the reply
	times   *times         // in text; nil if there is none
}

// matches reports whether a reply is the expected one, if up to late more time has passed than the transcript says.
func (e expected) matches(got string, late time.Duration) bool {
	if e.pattern != nil {
		return e.pattern.MatchString(got)
	}
	return e.text == got || e.times != nil && e.times.match(got, late)
}

// closed is the line that stands for the end of a connection, among the replies.
const closed = "closed"
