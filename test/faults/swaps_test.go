package faults

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// swaps are two databases that one client swaps and flushes. In between, the client writes all keys
// of one of them.
type swaps struct {
	swapped
}

var swapDatabases = [2]int{8, 9}

var swapKeys = []string{"swapped:a", "swapped:b", "swapped:c", "swapped:d"}

const emptyDatabase = "nil nil nil nil"

// begin begins a history with the keys that were found.
func (s *swaps) begin(found [2]view) {
	*s = swaps{swapped: swapped{mappings: []mapping{{contents: [2]int{0, 1}}}}}
	for i, v := range found {
		s.contents = append(s.contents, &history{name: fmt.Sprint("database ", swapDatabases[i], " at the start"),
			steps: []step{{after: v}}})
	}
}

// current returns the contents of the databases.
func (s *swaps) current() [2]int { return s.mappings[len(s.mappings)-1].contents }

// swap makes a step.
func (l *load) swap(c *conn, r *rand.Rand) error {
	s := l.swaps
	var answered *time.Duration
	calls := []string{fmt.Sprint("SELECT ", swapDatabases[0])}
	switch r.IntN(8) {
	case 0:
		calls = append(calls, fmt.Sprint("SWAPDB ", swapDatabases[0], " ", swapDatabases[1]))
		of := s.current()
		answered = s.remap([2]int{of[1], of[0]})
	case 1:
		calls = append(calls, "FLUSHDB")
		s.contents = append(s.contents, &history{name: fmt.Sprint("flushed database ", len(s.contents)),
			steps: []step{{after: view{text: emptyDatabase}}}})
		answered = s.remap([2]int{len(s.contents) - 1, s.current()[1]})
	default:
		v := strconv.Itoa(int(l.value.Add(1)))
		calls = append(calls, "MSET")
		for _, key := range swapKeys {
			calls[1] += " " + key + " " + v
		}
		text := strings.Join([]string{v, v, v, v}, " ")
		h := s.contents[s.current()[0]]
		h.steps = append(h.steps, step{sent: now(), answered: never, after: view{text: text}})
		answered = &h.steps[len(h.steps)-1].answered
	}
	replies, err := c.ask(calls...)
	if err != nil {
		return err
	}
	if replies[1] != "+OK" {
		return wrongReply{calls[1], "+OK", replies[1]}
	}
	*answered = now()
	l.answered.Add(1)
	return nil
}

// remap records that the databases now have these contents.
func (s *swaps) remap(contents [2]int) (answered *time.Duration) {
	s.mappings = append(s.mappings, mapping{now(), never, contents})
	return &s.mappings[len(s.mappings)-1].answered
}
