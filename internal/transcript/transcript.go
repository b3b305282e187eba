// Package transcript replays conversations with a server, and rewrites them.
//
// A conversation is a text file that can be read aloud: what a client says, then what it is told.
// It documents the protocol, and it is the test. One conversation has three listeners: the command
// table with a still clock (in process), the real binary (over a socket), and a real redis-server
// where everything in the file is Redis's.
//
//	@redis                              everything here is Redis's: a redis-server answers the same
//
// With @redis8 in its place that is one of Redis 8.4 or later, which is asked where it can be had:
// what it said is recorded here.
//
//	# Comments and blank lines are kept when the file is rewritten.
//	> SET greeting "hello\r\n"          client A says a command, split into words as an inline command is
//	+OK                                 and expects this reply; no line at all expects silence
//	> GET nosuch
//	nil
//	> TIME
//	~ \["\d{10}", "\d{1,6}"\]           a Go regexp for the whole rendered reply, for what varies
//	> BAD
//	-"ERR unknown command 'BAD', with args beginning with: "
//	> HELP
//	-ERR try COMMAND DOCS
//	redis: -ERR unknown command         what a redis-server says, where we differ by choice
//	@advance 1500ms                     moves the clock
//	B> SUBSCRIBE news                   client B, on a connection of its own
//	["subscribe", "news", 1]
//	> PUBLISH news hello
//	1
//	B>                                  B says nothing, and listens
//	["message", "news", "hello"]
//	raw "*1\r\n$4\r\nPI"                client A sends bytes as they are, quoted as in Go (B: B raw "...")
//	raw "NG\r\n"
//	+PONG
//	> QUIT
//	+OK
//	closed                              the server hung up; A dials again if it speaks again
//
// Explanations such as those on the right are for this page only: a comment has a line of its own.
// Directives other than @advance stand before the first step. The file leaves every client between
// two commands and able to hear: the last thing a server on a socket is told is a PING, whose
// answer proves that nothing else was on its way.
//
// How a reply is written is told at [ReadReply].
package transcript

import (
	"regexp"
	"time"
)

// File is one conversation.
type File struct {
	Name     string // as given to Parse; reports begin with it
	Redis    bool   // @redis: a redis-server can play it too
	Redis8   bool   // @redis8: one of version 8.4 or later can
	Advances bool   // it moves the clock, which a real clock can only follow by sleeping

	lines []string // the text as it was, so that a rewrite touches nothing but replies
	steps []step
}

// step is one act of a client and what it is told for it; or, without a client, the clock moving.
type step struct {
	line    int    // index in File.lines
	client  string // "A" to "Z"; "" for @advance
	send    []byte // nil to listen only
	advance time.Duration
	replies []reply
}

// reply is what we answer, and what a redis-server does if that is something else.
type reply struct {
	ours  expected
	redis *expected
}

// expected is one reply line: the reply as rendered, or a pattern for it.
type expected struct {
	line    int // index in File.lines
	text    string
	pattern *regexp.Regexp // nil: the text itself
}

func (e expected) matches(got string) bool {
	if e.pattern != nil {
		return e.pattern.MatchString(got)
	}
	return e.text == got
}

// closed is how the end of a connection is written, among the replies.
const closed = "closed"
