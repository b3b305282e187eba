package transcript

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Stage is where a conversation is played: a server, and its clock.
type Stage interface {
	// Dial connects a new client.
	Dial() (Peer, error)
	// Advance moves the clock: a still clock is set, a real one is waited for.
	Advance(d time.Duration) error
}

// Peer is the server's end of one client's connection.
type Peer interface {
	Send(b []byte) error
	// Receive returns the next reply as ReadReply writes it, io.EOF when the server hung up,
	// ErrSilent when there is no reply. Patience is how long a peer that cannot know is given to
	// say something; one that knows does not wait.
	Receive(patience time.Duration) (string, error)
	// Close ends the connection and returns what was said that nobody had listened to.
	Close() (unheard []string)
}

// ErrSilent says that the peer has nothing more to say.
var ErrSilent = errors.New("silence")

const (
	due        = 5 * time.Second        // how late a reply may be: nothing in a conversation takes a tenth of it
	settled    = 100 * time.Millisecond // a rewrite from a socket takes this much silence for the end of the replies
	maxReplies = 10_000                 // to one step: more is a server that will not stop
)

// Difference is a reply that is not the one in the file.
type Difference struct {
	File      string
	Line      int    // of the expected reply; of the step, where no reply was expected
	Command   string // the line that asked for it
	Want, Got string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s:%d: %s\n\twant %s\n\tgot  %s", d.File, d.Line, d.Command, d.Want, d.Got)
}

// Play plays the conversation and returns where the replies differed. It goes on after a wrong
// reply, but not after a missing one: what follows would be out of step.
func (f *File) Play(s Stage) []Difference { return f.play(s, false) }

// PlayToRedis plays it to a redis-server, which is held to the redis: lines where there are any.
func (f *File) PlayToRedis(s Stage) []Difference { return f.play(s, true) }

func (f *File) play(s Stage, redis bool) []Difference {
	talk := conversation{stage: s, clients: map[string]*client{}}
	var found []Difference
	for i := range f.steps {
		differences, inStep := f.compare(&talk, &f.steps[i], redis)
		found = append(found, differences...)
		if !inStep {
			talk.close()
			return found
		}
	}
	for _, u := range talk.close() {
		found = append(found, f.differ(u.step, u.step.line, ErrSilent.Error(), u.text))
	}
	return found
}

// compare performs one step. It reports whether both sides are still at the same place of the
// conversation.
func (f *File) compare(talk *conversation, s *step, redis bool) (found []Difference, inStep bool) {
	note := func(line int, want, got string) { found = append(found, f.differ(s, line, want, got)) }
	if err := talk.perform(s); err != nil {
		note(s.line, "to be done", err.Error())
		return found, false
	}
	for _, r := range s.replies {
		want := r.ours
		if redis && r.redis != nil {
			want = *r.redis
		}
		got, err := talk.hear(s.client, due)
		if err != nil {
			note(want.line, want.text, err.Error())
			return found, false
		}
		if !want.matches(got) {
			note(want.line, want.text, got)
			if got == closed {
				return found, false
			}
		}
	}
	extra, err := talk.rest(s.client, 0)
	for _, got := range extra {
		note(s.line, ErrSilent.Error(), got)
	}
	if err != nil {
		note(s.line, ErrSilent.Error(), err.Error())
	}
	return found, err == nil
}

func (f *File) differ(s *step, line int, want, got string) Difference {
	command := strings.TrimSpace(f.lines[s.line])
	return Difference{File: f.Name, Line: line + 1, Command: command, Want: want, Got: got}
}

// conversation is a play going on: the clients that are connected.
type conversation struct {
	stage   Stage
	clients map[string]*client
}

type client struct {
	Peer
	last *step // the last in which it took part
}

// unheard is a reply that nobody listened to, with the step that it came after.
type unheard struct {
	step *step
	text string
}

// perform does what the step says: a client speaks, dialing first if it is not connected, or the
// clock moves.
func (c *conversation) perform(s *step) error {
	if s.client == "" {
		return c.stage.Advance(s.advance)
	}
	who := c.clients[s.client]
	if who == nil {
		peer, err := c.stage.Dial()
		if err != nil {
			return err
		}
		who = &client{Peer: peer}
		c.clients[s.client] = who
	}
	who.last = s
	if s.send == nil {
		return nil
	}
	return who.Send(s.send)
}

// hear returns the next reply to a client. That the server hung up is one of them, and the last.
func (c *conversation) hear(name string, patience time.Duration) (string, error) {
	who := c.clients[name]
	if who == nil {
		return "", ErrSilent
	}
	got, err := who.Receive(patience)
	if errors.Is(err, io.EOF) {
		who.Close()
		delete(c.clients, name)
		return closed, nil
	}
	return got, err
}

// rest returns all that a client is still told.
func (c *conversation) rest(name string, patience time.Duration) ([]string, error) {
	var all []string
	for len(all) < maxReplies {
		got, err := c.hear(name, patience)
		if errors.Is(err, ErrSilent) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, got)
	}
	return all, fmt.Errorf("more than %d replies", maxReplies)
}

// close ends every connection and returns what was left on them.
func (c *conversation) close() []unheard {
	var all []unheard
	for _, name := range slices.Sorted(maps.Keys(c.clients)) {
		who := c.clients[name]
		for _, text := range who.Close() {
			all = append(all, unheard{who.last, text})
		}
	}
	return all
}
