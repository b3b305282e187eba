package policy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/standing"
)

const planned = "{plans: {free: {limits: [{fixed: {limit: 1, period: 1s}}]}, " +
	"pro: {limits: [{fixed: {limit: 9, period: 1s}}]}}, plan: free, " +
	"overrides: [{subject: x, limits: [{fixed: {limit: 5, period: 1s}}]}]}"

// A plan decides while it lasts, unless an override is for the subject, or the policy has no such plan.
func TestPlanFor(t *testing.T) {
	p := one(t, planned)
	require.Equal(t, int64(1), p.Limits[0].Size())
	usual := p.treat(p.Subject([]byte("a")))
	for _, test := range []struct {
		subject, plan string
		until, now    int64
		size          int64
	}{
		{"a", "pro", 10, 9, 9}, {"a", "pro", 10, 10, 1}, {"a", "gone", 10, 9, 1}, {"x", "pro", 10, 9, 5},
		{"a", "free", 10, 9, 1},
	} {
		s := standing.State{Plan: standing.Plan{Name: test.plan, Term: standing.Term{Until: test.until}}}
		got := p.PlanFor(test.now, &s, p.treat(p.Subject([]byte(test.subject))))
		require.Equal(t, test.size, got.Limits[0].Size(), "%+v", test)
		require.Equal(t, test.size == 9, got.Plan == "pro")
	}
	require.Equal(t, usual, p.PlanFor(1, nil, usual))
}

func TestManyPlans(t *testing.T) {
	text := func(n int) string {
		plans := ""
		for i := range n {
			plans += strings.Repeat("p", i+1) + ": {limits: [{fixed: {limit: 9, period: 1s}}]}, "
		}
		return "policies: {p: {limits: [{fixed: {limit: 1, period: 1s}}], plans: {" + plans + "}}}"
	}
	parse(t, text(MaxPlans))
	_, err := Parse([]File{{"p.yaml", []byte(text(MaxPlans + 1))}}, Options{})
	require.ErrorContains(t, err, "more than 32 plans")
}

// A removed plan is reported, with the limits that its subjects have then, and so is each change of a plan's
// limits.
func TestDiffOfPlans(t *testing.T) {
	changed := strings.NewReplacer("pro: {limits: [{fixed: {limit: 9,", "gold: {limits: [{fixed: {limit: 7,",
		"limit: 1,", "limit: 2,").Replace(planned)
	before, after := parse(t, "policies: {p: "+planned+"}"), parse(t, "policies: {p: "+changed+"}")
	require.Equal(t, []string{
		"p: fixed: limit 1, period 1s -> limit 2, period 1s",
		"p: plan free: fixed: limit 1, period 1s -> limit 2, period 1s",
		"p: plan pro: removed: its subjects have plan free",
		"p: plan gold: new: fixed limit 7, period 1s",
	}, Diff(before, after))
	require.Empty(t, Diff(after, after))
}
