package replay

import (
	"cmp"
	"slices"
)

// subject is what is counted of a subject. A million of them must fit in memory.
type subject struct {
	requests  int64
	limited   int64
	before    int64 // limited by the policy of --instead-of
	newly     int64 // limited, but not before
	refusedAt int64 // when it was refused first since it was last admitted; 0 if it is admitted
	longest   int64 // nanoseconds without a break in which it was refused
	banned    int64 // until when
	bans      int32
	answered  int32 // requests whose status the log has, up to 2^31
	succeeded int32 // answered with 2xx or 3xx
}

// subjectBytes bounds the memory for each subject, beside its name, which package weblog counts: a subject, which a
// growing list may hold twice over, the steps of the table, and the keys of a policy with one limit in the store.
const subjectBytes = 2*72 + 2*8*8 + 160

// tally has all that is counted in a replay.
type tally struct {
	subjects            []subject
	requests, limited   int64
	first, last         int64 // Unix nanoseconds
	missing             int64 // requests without a subject
	already             int64 // answered with 429 in the log
	before              int64 // limited by the policy of --instead-of
	newly, noLonger     int64 // limited, or not limited, other than before
	delayed, delay      int64 // requests that a retry admitted, and the longest delay
	retried             int64 // retries that were made
	whole               bool  // a time was in whole seconds
	labels              []label
	longest             int64
	longestOf           int32
	bans, bannedSubject int64
	times               timeline
}

// label counts refusals by what has decided them.
type label struct {
	name    string
	limited int64
}

func (t *tally) subject(n int32) *subject {
	for int(n) >= len(t.subjects) {
		t.subjects = append(t.subjects, subject{})
	}
	return &t.subjects[n]
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

// countRefusal counts a refusal at a time, and returns for how long there was no admission.
func (s *subject) countRefusal(at int64) (length int64) {
	if s.refusedAt == 0 {
		s.refusedAt = at
	}
	s.longest = max(s.longest, at-s.refusedAt)
	return at - s.refusedAt
}

// looksLikeCustomer reports whether nearly all that a limited subject got were successes.
func (s *subject) looksLikeCustomer() bool {
	return s.limited > 0 && s.answered > 0 && int64(s.succeeded)*100 >= int64(s.answered)*95
}

// mostLimited returns the numbers of the subjects that are limited most.
func (t *tally) mostLimited(count int) (numbers []int32) {
	for i := range t.subjects {
		if t.subjects[i].limited > 0 || t.subjects[i].before > 0 {
			numbers = append(numbers, int32(i))
		}
	}
	slices.SortStableFunc(numbers, func(a, b int32) int {
		x, y := &t.subjects[a], &t.subjects[b]
		return cmp.Or(cmp.Compare(y.limited, x.limited), cmp.Compare(y.before, x.before))
	})
	return numbers[:min(count, len(numbers))]
}
