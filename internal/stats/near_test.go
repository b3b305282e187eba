package stats

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Of each subject, the latest call counts, for a minute.
func TestSubjectsNearTheirLimits(t *testing.T) {
	var p PolicyDecisions
	d := p.Of("api")
	look := func(policy string, second int64) string {
		p.Sample(second)
		sampled, near := p.Near(policy)
		return fmt.Sprint(near, " of ", sampled)
	}
	assert.Equal(t, "0 of 0", look("api", 0))
	d.NoteUse([]byte("alice"), 10, 79, 100)
	assert.Equal(t, "0 of 1", look("api", 10))
	d.NoteUse([]byte("alice"), 11, 80, 100)
	assert.Equal(t, "1 of 1", look("api", 71))
	assert.Equal(t, "0 of 0", look("api", 72))
	d.NoteUse([]byte("alice"), 72, math.MaxInt64, math.MaxInt64-1)
	assert.Equal(t, "1 of 1", look("api", 72))
	d.NoteUse([]byte("alice"), 73, -5, 9)
	assert.Equal(t, "0 of 1", look(AllPolicies, 73))
	assert.Equal(t, "0 of 0", look(OtherPolicies, 73))
	assert.Equal(t, "0 of 0", look("none", 73))
}

// However many subjects there are, the sample has as many as it has slots, and its share is about theirs.
func TestSampleOfSubjects(t *testing.T) {
	var d Decisions
	for i := range 100_000 {
		d.NoteUse(fmt.Appendf(nil, "user:%d", i), 1, int64(i%10), 9) // two in ten are above 80 %
	}
	sampled, near := d.near(1)
	assert.Equal(t, int64(nearSlots), sampled)
	assert.InDelta(t, 0.2, float64(near)/float64(sampled), 0.15)
	key := []byte("user")
	assert.Zero(t, testing.AllocsPerRun(100, func() { d.NoteUse(key, 1, 1, 2) }))
}
