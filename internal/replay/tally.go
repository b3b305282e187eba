package replay

import (
	"cmp"
	"slices"
)

// subject has the counts of a subject. It is small, because millions must fit in memory, and each request looks at one.
type subject struct {
	requests  int64
	answered  int32 // requests whose status the log has, up to 2^31
	succeeded int32 // answered with 2xx or 3xx
	refused   int32 // 1 plus the index of its refusals; 0 if it was never refused
}

// refusals has the counts of a subject that was refused.
type refusals struct {
	limited   int64
	before    int64 // limited by the policy of --instead-of
	refusedAt int64 // instant of its first refusal since it was last admitted; 0 if it is admitted
	longest   int64 // the longest time in which it was refused without a break, in nanoseconds
	banned    int64 // instant until which it is banned
	bans      int32
}

// tally has all that is counted in a replay.
type tally struct {
	subjects            list[subject]
	refusals            list[refusals]
	requests, limited   int64
	first, last         int64 // Unix nanoseconds
	missing             int64 // requests without a subject
	already             int64 // answered with 429 in the log
	before              int64 // limited by the policy of --instead-of
	newly, noLonger     int64 // limited now but not before, and the reverse
	delayed, delay      int64 // requests that a retry admitted, and the longest delay
	retried             int64 // retries that were made
	whole               bool  // the time of a request was in whole seconds
	labels              []label
	longest             int64
	longestOf           int32
	bans, bannedSubject int64
	times               timeline
}

// label counts the refusals of one limit or rule.
type label struct {
	name    string
	limited int64
}

func (t *tally) subject(n int32) *subject {
	for int(n) >= t.subjects.count {
		t.subjects.add()
	}
	return t.subjects.at(n)
}

// refusalsOf returns the counts of a subject that is refused, and adds them if this is its first refusal.
func (t *tally) refusalsOf(s *subject) *refusals {
	if s.refused == 0 {
		s.refused = t.refusals.add() + 1
	}
	return t.refusals.at(s.refused - 1)
}

// past returns a copy of the counts of a subject, which are zero if it was never refused.
func (t *tally) past(s *subject) (r refusals) {
	if s.refused > 0 {
		r = *t.refusals.at(s.refused - 1)
	}
	return r
}

// list is a list that grows by pages, so that it never holds its elements twice.
type list[T any] struct {
	pages [][]T
	count int
}

const pageLength = 1 << 10

func (l *list[T]) at(n int32) *T { return &l.pages[n/pageLength][n%pageLength] }

// add adds an element, and returns its number.
func (l *list[T]) add() (n int32) {
	if l.count%pageLength == 0 {
		l.pages = append(l.pages, make([]T, pageLength))
	}
	l.count++
	return int32(l.count - 1)
}

func (t *tally) countLabel(name string) {
	i := slices.IndexFunc(t.labels, func(l label) bool { return l.name == name })
	if i < 0 {
		i = len(t.labels)
		t.labels = append(t.labels, label{name: name})
	}
	t.labels[i].limited++
}

// countStatus counts how the log says that a request was answered.
func (s *subject) countStatus(status int16) {
	if status == 0 || s.answered == 1<<31-1 {
		return
	}
	s.answered++
	if status >= 200 && status < 400 {
		s.succeeded++
	}
}

// count counts a refusal at a time, and returns for how long the subject has been refused without a break.
func (r *refusals) count(at int64) (length int64) {
	if r.refusedAt == 0 {
		r.refusedAt = at
	}
	r.longest = max(r.longest, at-r.refusedAt)
	return at - r.refusedAt
}

// looksLikeCustomer reports whether nearly all answers to a limited subject were successes.
func (s *subject) looksLikeCustomer(past *refusals) bool {
	return past.limited > 0 && s.answered > 0 && int64(s.succeeded)*100 >= int64(s.answered)*95
}

// mostLimited returns the numbers of the subjects that are limited most.
func (t *tally) mostLimited(count int) (numbers []int32) {
	for i := range int32(t.subjects.count) {
		if past := t.past(t.subjects.at(i)); past.limited > 0 || past.before > 0 {
			numbers = append(numbers, i)
		}
	}
	slices.SortStableFunc(numbers, func(a, b int32) int {
		x, y := t.past(t.subjects.at(a)), t.past(t.subjects.at(b))
		return cmp.Or(cmp.Compare(y.limited, x.limited), cmp.Compare(y.before, x.before))
	})
	return numbers[:min(count, len(numbers))]
}
