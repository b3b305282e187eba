package faults

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// never is the time of a reply that has not arrived.
const never = time.Duration(math.MaxInt64)

// always is the promise of a server that shuts down: everything that was answered must be there.
const always = never - 1

// view is the state of the keys of a subject.
type view struct {
	text  string
	until span // when the key expires, for subjects with keys that expire
}

// span is a time that is known to lie between two instants.
type span struct{ from, to time.Duration }

func (v view) matches(other view) bool {
	return v.text == other.text && v.until.from <= other.until.to && other.until.from <= v.until.to
}

// later returns what the next start may find of a view.
func (v view) later() view {
	if v.until != (span{}) {
		v.until = span{v.until.from - clockError, v.until.to + clockError}
	}
	return v
}

func (v view) String() string {
	if v.until == (span{}) {
		return v.text
	}
	return fmt.Sprintf("%s until %v..%v", v.text, v.until.from, v.until.to)
}

// step is a call, or a transaction, that changes a subject.
type step struct {
	sent, answered time.Duration
	after          view
	whole          bool // it changes all keys; used in histories whose keys are apart
}

// history has the steps of a subject, which is a group of keys that only one client changes. Each
// step changes a key that the previous step has changed too. A pass contains all changes of a step
// or none, and no later change of a key without the earlier ones. So the view that is found must be
// the view after one of the steps.
//
// The first step stands for the view that was found when the server started, which is on the disk.
type history struct {
	name  string
	steps []step
	apart bool // each key is a word of the views, and a step may change other keys than the previous step
}

// check returns an error if the found view contradicts the history. All steps that were answered
// before promised must be there, and no step that was not sent.
func (h *history) check(found view, promised time.Duration) error {
	last := 0
	for i, s := range h.steps {
		if s.answered <= promised {
			last = i
		}
	}
	for _, s := range h.steps[last:] {
		if s.after.matches(found) {
			return nil
		}
	}
	if h.apart && areApart(h.steps[last:], found) {
		return nil
	}
	for i := last - 1; i >= 0; i-- {
		if h.steps[i].after.matches(found) {
			return fmt.Errorf("%s is as after step %d of %d, but step %d was answered at %v, %v before the promise: "+
				"%v instead of %v", h.name, i, len(h.steps)-1, last, h.steps[last].answered, promised-h.steps[last].answered,
				found, h.steps[last].after)
		}
	}
	return fmt.Errorf("%s has never been %v; after step %d of %d, which was promised, it was %v", h.name, found, last,
		len(h.steps)-1, h.steps[last].after)
}

// areApart reports whether each key has its value after one of the steps. A pass visits keys one after the other,
// so it may have a later step of one key without an earlier step of another key. If a step changed both keys, the
// pass has both changes or none.
func areApart(steps []step, found view) bool {
	words := strings.Fields(found.text)
	seen := make([]bool, len(words))
	for _, s := range steps {
		if s.whole {
			clear(seen)
		}
		for i, word := range strings.Fields(s.after.text) {
			if i < len(words) && word == words[i] {
				seen[i] = true
			}
		}
		if !slices.Contains(seen, false) {
			return true
		}
	}
	return false
}

// shared is the history of a subject that several clients change. Each call is answered with the
// number of calls so far.
type shared struct {
	name     string
	start    int
	sent     int
	answered map[int]time.Duration
	view     func(count int) view
}

func (s *shared) check(found view, promised time.Duration) error {
	h := history{name: s.name, steps: []step{{after: s.view(s.start)}}}
	for n := s.start + 1; n <= s.start+s.sent; n++ {
		answered, ok := s.answered[n]
		if !ok {
			answered = never
		}
		h.steps = append(h.steps, step{answered: answered, after: s.view(n)})
	}
	return h.check(found, promised)
}

// swapped is the history of databases that are swapped and flushed. Each step within a database
// changes all its keys. Such steps are independent of swaps, so a pass may contain one without the
// other.
type swapped struct {
	mappings []mapping
	contents []*history
}

// mapping says what each database contains after a SWAPDB or FLUSHDB.
type mapping struct {
	sent, answered time.Duration
	contents       [2]int
}

func (s *swapped) check(found [2]view, promised time.Duration) (err error) {
	last := 0
	for i, m := range s.mappings {
		if m.answered <= promised {
			last = i
		}
	}
	for _, m := range s.mappings[last:] {
		if err = s.checkMapping(m, found, promised); err == nil {
			return nil
		}
	}
	return fmt.Errorf("databases %v after mapping %d of %d: %w", found, last, len(s.mappings)-1, err)
}

func (s *swapped) checkMapping(m mapping, found [2]view, promised time.Duration) error {
	for i, content := range m.contents {
		if err := s.contents[content].check(found[i], promised); err != nil {
			return err
		}
	}
	return nil
}
