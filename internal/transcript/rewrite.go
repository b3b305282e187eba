package transcript

import (
	"fmt"
	"strings"
)

// Rewrite plays the transcript and returns its text with the replies that were received. Everything
// else stays: comments, commands, patterns that match, redis: lines of replies that differ.
//
// On a stage that cannot know whether more replies follow, Rewrite waits for a moment after each
// step. So a redis-server can provide the replies of a new file too.
func (f *File) Rewrite(s Stage) ([]byte, error) {
	p := player{stage: s, clients: map[string]*client{}}
	changed := edits{}
	for i := range f.steps {
		if err := f.rewriteStep(&p, &f.steps[i], changed); err != nil {
			p.close()
			return nil, fmt.Errorf("%s:%d: %w", f.Name, f.steps[i].line+1, err)
		}
	}
	if left := p.close(); len(left) > 0 {
		u := left[0]
		return nil, fmt.Errorf("%s:%d: at the end, client %s had not received %s; receive it with a line \"%[3]s>\"",
			f.Name, u.step.line+1, u.step.client, u.text)
	}
	return changed.apply(f.lines), nil
}

func (f *File) rewriteStep(p *player, s *step, changed edits) error {
	if err := p.perform(s); err != nil {
		return err
	}
	got, err := p.receiveAll(s.client, silence)
	if err != nil {
		return err
	}
	last := s.line // new replies go below it
	for i, r := range s.replies {
		last = r.ours.line
		switch {
		case i >= len(got):
			changed[r.ours.line] = nil
		case !r.ours.matches(got[i], p.stage.Late()):
			changed[r.ours.line] = []string{got[i]}
		}
		if r.redis == nil {
			continue
		}
		last = r.redis.line
		if i >= len(got) || r.redis.text == got[i] { // the line is obsolete
			changed[r.redis.line] = nil
		}
	}
	if len(got) > len(s.replies) {
		changed.insert(f.lines, last, got[len(s.replies):])
	}
	return nil
}

// edits maps the index of a line to the lines that replace it. Other lines stay.
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
