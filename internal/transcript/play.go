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

// Stage is a server, and its clock, to which a transcript is played.
type Stage interface {
	// Dial connects a new client.
	Dial() (Peer, error)
	// Advance advances the clock. With a real clock, it waits.
	Advance(d time.Duration) error
	// Late returns how much more time may have passed than Advance was asked for: nothing with a still clock.
	Late() time.Duration
}

// Peer is the connection of one client to the server.
type Peer interface {
	Send(b []byte) error
	// Receive returns the next reply as ReadReply formats it, io.EOF if the server has closed the
	// connection, and ErrSilent if there is no reply. It waits up to timeout for a reply if it
	// cannot know that there will be none.
	Receive(timeout time.Duration) (string, error)
	// Close closes the connection and returns the replies that were not received.
	Close() (unread []string)
}

// ErrSilent means that the server sends no further reply.
var ErrSilent = errors.New("silence")

const (
	replyTimeout = time.Minute            // for a reply to arrive, on a machine that is busy
	silence      = 100 * time.Millisecond // after which the replies to a step end, in a rewrite from a socket
	maxReplies   = 10_000                 // to one step: with more, the server is assumed never to stop
)

// Difference is a reply that differs from the one in the file.
type Difference struct {
	File      string
	Line      int    // of the expected reply, or of the step if no reply was expected
	Command   string // the line of the step
	Want, Got string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s:%d: %s\n\twant %s\n\tgot  %s", d.File, d.Line, d.Command, d.Want, d.Got)
}

// Play plays the transcript and returns the differences. It continues after a reply that differs,
// but not after a missing one, because later replies would be compared with the wrong lines.
func (f *File) Play(s Stage) []Difference { return f.play(s, false) }

// PlayToRedis plays the transcript to a redis-server, for which the redis: lines are the expected
// replies.
func (f *File) PlayToRedis(s Stage) []Difference { return f.play(s, true) }

func (f *File) play(s Stage, redis bool) []Difference {
	p := player{stage: s, clients: map[string]*client{}}
	var found []Difference
	for i := range f.steps {
		differences, inStep := f.compare(&p, &f.steps[i], redis)
		found = append(found, differences...)
		if !inStep {
			p.close()
			return found
		}
	}
	for _, u := range p.close() {
		found = append(found, f.differ(u.step, u.step.line, ErrSilent.Error(), u.text))
	}
	return found
}

// compare performs a step and compares the replies. inStep is false if the next step cannot be
// compared.
func (f *File) compare(p *player, s *step, redis bool) (found []Difference, inStep bool) {
	note := func(line int, want, got string) { found = append(found, f.differ(s, line, want, got)) }
	if err := p.perform(s); err != nil {
		note(s.line, "no error", err.Error())
		return found, false
	}
	for _, r := range s.replies {
		want := r.ours
		if redis && r.redis != nil {
			want = *r.redis
		}
		got, err := p.receive(s.client, replyTimeout)
		if err != nil {
			note(want.line, want.text, err.Error())
			return found, false
		}
		if !want.matches(got, p.stage.Late()) {
			note(want.line, want.text, got)
			if got == closed {
				return found, false
			}
		}
	}
	extra, err := p.receiveAll(s.client, 0)
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

// player plays a transcript. It holds the connected clients.
type player struct {
	stage   Stage
	clients map[string]*client
}

type client struct {
	Peer
	lastStep *step // the latest step of this client
}

// unread is a reply that no step has received, with the latest step of its client.
type unread struct {
	step *step
	text string
}

// perform sends the bytes of a step, after connecting its client if necessary. For an @advance, it
// advances the clock.
func (c *player) perform(s *step) error {
	if s.client == "" {
		return c.stage.Advance(s.advance)
	}
	peer := c.clients[s.client]
	if peer == nil {
		conn, err := c.stage.Dial()
		if err != nil {
			return err
		}
		peer = &client{Peer: conn}
		c.clients[s.client] = peer
	}
	peer.lastStep = s
	if s.send == nil {
		return nil
	}
	return peer.Send(s.send)
}

// receive returns the next reply to a client. The last is closed, if the server closes the
// connection.
func (c *player) receive(name string, timeout time.Duration) (string, error) {
	peer := c.clients[name]
	if peer == nil {
		return "", ErrSilent
	}
	got, err := peer.Receive(timeout)
	if errors.Is(err, io.EOF) {
		peer.Close()
		delete(c.clients, name)
		return closed, nil
	}
	return got, err
}

// receiveAll returns all further replies to a client.
func (c *player) receiveAll(name string, timeout time.Duration) ([]string, error) {
	var all []string
	for len(all) < maxReplies {
		got, err := c.receive(name, timeout)
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

// close closes all connections and returns the replies that were not received.
func (c *player) close() []unread {
	var all []unread
	for _, name := range slices.Sorted(maps.Keys(c.clients)) {
		peer := c.clients[name]
		for _, text := range peer.Close() {
			all = append(all, unread{peer.lastStep, text})
		}
	}
	return all
}
