package transcript

import (
	"fmt"
	"strings"
)

// Rewrite plays the conversation and returns its text with the replies that were really received.
// Everything else stays as it was: comments, commands, patterns that still match, redis: lines of
// replies that are still there.
//
// A stage that cannot know when a peer is silent is listened to for a moment after each step; so a
// new file can be filled in by a redis-server, too.
func (f *File) Rewrite(s Stage) ([]byte, error) {
	talk := conversation{stage: s, clients: map[string]*client{}}
	changed := edits{}
	for i := range f.steps {
		if err := f.rewriteStep(&talk, &f.steps[i], changed); err != nil {
			talk.close()
			return nil, fmt.Errorf("%s:%d: %w", f.Name, f.steps[i].line+1, err)
		}
	}
	if left := talk.close(); len(left) > 0 {
		u := left[0]
		return nil, fmt.Errorf("%s:%d: at the end, client %s was left with %s; let it listen with a line \"%[3]s>\"",
			f.Name, u.step.line+1, u.step.client, u.text)
	}
	return changed.apply(f.lines), nil
}

func (f *File) rewriteStep(talk *conversation, s *step, changed edits) error {
	if err := talk.perform(s); err != nil {
		return err
	}
	got, err := talk.rest(s.client, settled)
	if err != nil {
		return err
	}
	last := s.line // new replies go below it
	for i, r := range s.replies {
		last = r.ours.line
		switch {
		case i >= len(got):
			changed[r.ours.line] = nil
		case !r.ours.matches(got[i]):
			changed[r.ours.line] = []string{got[i]}
		}
		if r.redis == nil {
			continue
		}
		last = r.redis.line
		if i >= len(got) || r.redis.text == got[i] { // nothing left to differ from
			changed[r.redis.line] = nil
		}
	}
	if len(got) > len(s.replies) {
		changed.insert(f.lines, last, got[len(s.replies):])
	}
	return nil
}

// edits says which lines take the place of a line. A line without an entry stays.
type edits map[int][]string

func (e edits) insert(lines []string, below int, added []string) {
	kept, touched := e[below]
	if !touched {
		kept = []string{lines[below]}
	}
	e[below] = append(kept, added...)
}

func (e edits) apply(lines []string) []byte {
	var out []string
	for i, line := range lines {
		if instead, touched := e[i]; touched {
			out = append(out, instead...)
			continue
		}
		out = append(out, line)
	}
	return []byte(strings.Join(out, "\n"))
}
