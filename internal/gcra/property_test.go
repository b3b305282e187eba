package gcra

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/quota"
)

// TestMain runs more than rapid's default of 100 cases, because the rarest planted fault took about
// 700 to show. A flag on the command line takes precedence.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "2000"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// A property draws a case, calls step and reports what is wrong. It takes the step as an argument
// so that the property itself can be tested: each lists the planted faults that it must detect.
type property struct {
	name    string
	check   func(t *rapid.T, step stepFunc) error
	catches []string
}

var properties = []property{
	{"a step is the model's", stepAgrees, []string{
		"admits one too many", "loses what is given back", "keeps whole ms", "saves idle time up", "retry in whole ms",
		"retry one ns late", "retry never", "reset one ns early", "peek stores", "peek says what is",
		"UPTO is all or nothing", "remaining is rounded up", "remaining is below zero in debt",
		"a forced debt is forgotten", "products wrap", "says that all came back", "a limit of 0 looks at the key",
		"after force a limit of 0 has a wait",
	}},
	{"an interval of t admits at most limit + t/E", intervalIsBounded, []string{
		"admits one too many", "keeps whole ms", "saves idle time up",
	}},
	{"a decision stays in its bounds", decisionIsBounded, []string{
		"admits one too many", "remaining is below zero in debt",
	}},
	{"retry_after is exact, in ns, ms and seconds", retryIsExact, []string{
		"retry in whole ms", "retry one ns late", "retry never", "after force a limit of 0 has a wait",
	}},
	{"reset_after is exact", resetIsExact, []string{"reset one ns early", "keeps whole ms"}},
	{"remaining can be taken, and one more cannot", remainingIsExact, []string{
		"remaining is rounded up", "remaining is below zero in debt", "a forced debt is forgotten",
	}},
	{"taking and giving back cancels", givingBackCancels, []string{
		"loses what is given back", "keeps whole ms", "a forced debt is forgotten",
	}},
	{"a peek says what a take would, and stores nothing", peekIsHonest, []string{"peek stores", "peek says what is"}},
	{"UPTO takes the most that fits", upToIsMost, []string{"UPTO is all or nothing"}},
}

func TestProperties(t *testing.T) {
	for _, p := range properties {
		t.Run(p.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { requireHolds(t, p.check(t, Limit.Step)) })
		})
		t.Run(p.name+" (the model's step)", func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { requireHolds(t, p.check(t, modelStep)) })
		})
		for _, name := range p.catches {
			t.Run(p.name+" catches: "+name, func(t *testing.T) {
				require.Contains(t, plantedFaults, name)
				requireCaught(t, func(t *rapid.T) error { return p.check(t, plantedFaults[name]) })
			})
		}
	}
}

func requireHolds(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// requireCaught requires check to report a fault within as many draws as a thorough run makes. The
// seeds are fixed.
func requireCaught(t *testing.T, check func(*rapid.T) error) {
	draws := rapid.Custom(check)
	for seed := range 10_000 {
		if draws.Example(seed) != nil {
			return
		}
	}
	t.Fatal("the planted fault was not detected")
}

// Each of plantedFaults is a step that is wrong in one way.
var plantedFaults = map[string]stepFunc{
	"admits one too many": func(l Limit, now, tat, quantity int64, mode quota.Mode) (quota.Decision, int64, error) {
		wider := Limit{size: l.size + 1, emission: l.emission, tolerance: l.tolerance + l.emission}
		d, next, err := wider.Step(now, tat, quantity, mode)
		d.Limit = l.size
		return d, next, err
	},
	"loses what is given back": func(l Limit, now, tat, quantity int64, mode quota.Mode) (quota.Decision, int64, error) {
		d, next, err := l.Step(now, tat, quantity, mode)
		if quantity < 0 {
			next = tat
		}
		return d, next, err
	},
	"keeps whole ms": func(l Limit, now, tat, quantity int64, mode quota.Mode) (quota.Decision, int64, error) {
		d, next, err := l.Step(now, tat, quantity, mode)
		if next != tat {
			next -= next % 1e6
		}
		return d, next, err
	},
	"saves idle time up": func(l Limit, now, tat, quantity int64, mode quota.Mode) (quota.Decision, int64, error) {
		if tat > 0 {
			now = min(now, tat)
		}
		return l.Step(now, tat, quantity, mode)
	},
	"peek stores": func(l Limit, now, tat, quantity int64, mode quota.Mode) (quota.Decision, int64, error) {
		if mode == quota.Peek {
			mode = quota.Take
		}
		return l.Step(now, tat, quantity, mode)
	},
	"peek says what is": func(l Limit, now, tat, quantity int64, mode quota.Mode) (quota.Decision, int64, error) {
		if mode == quota.Peek {
			quantity = 0
		}
		return l.Step(now, tat, quantity, mode)
	},
	"UPTO is all or nothing": func(l Limit, now, tat, quantity int64, mode quota.Mode) (quota.Decision, int64, error) {
		if mode == quota.UpTo {
			mode = quota.Take
		}
		return l.Step(now, tat, quantity, mode)
	},
	"a forced debt is forgotten": func(l Limit, now, tat, quantity int64, mode quota.Mode) (quota.Decision, int64, error) {
		d, next, err := l.Step(now, tat, quantity, mode)
		if mode == quota.Force && d.Limited {
			next = tat
		}
		return d, next, err
	},
	"says that all came back": func(l Limit, now, tat, quantity int64, mode quota.Mode) (quota.Decision, int64, error) {
		d, next, err := l.Step(now, tat, quantity, mode)
		if quantity < 0 {
			d.Taken = quantity
		}
		return d, next, err
	},
	"a limit of 0 looks at the key": func(l Limit, now, tat, quantity int64, mode quota.Mode) (quota.Decision, int64,
		error) {
		d, next, err := l.Step(now, tat, quantity, mode)
		if l.Blocks(quantity, mode) {
			d.ResetAfter = max(tat-now, 0)
		}
		return d, next, err
	},
	"after force a limit of 0 has a wait": func(l Limit, now, tat, quantity int64, mode quota.Mode) (quota.Decision, int64,
		error) {
		d, next, err := l.Step(now, tat, quantity, mode)
		if l.size == 0 && quantity > 0 && mode == quota.Force && err == nil {
			d.RetryAfter = d.ResetAfter + l.emission
		}
		return d, next, err
	},
	"products wrap": func(l Limit, now, tat, quantity int64, mode quota.Mode) (quota.Decision, int64, error) {
		if wrapped := l.emission * quantity; mode == quota.Take && quantity > l.size && wrapped <= l.tolerance {
			return quota.Decision{Limit: l.size, RetryAfter: quota.Never, Taken: quantity}, tat, nil
		}
		return l.Step(now, tat, quantity, mode)
	},
	"retry in whole ms": misreporting(func(l Limit, d *quota.Decision) {
		if d.RetryAfter > 0 {
			d.RetryAfter -= d.RetryAfter % 1e6
		}
	}),
	"retry one ns late": misreporting(func(l Limit, d *quota.Decision) {
		if d.RetryAfter > 0 {
			d.RetryAfter++
		}
	}),
	"retry never":        misreporting(func(l Limit, d *quota.Decision) { d.RetryAfter = quota.Never }),
	"reset one ns early": misreporting(func(l Limit, d *quota.Decision) { d.ResetAfter = max(0, d.ResetAfter-1) }),
	"remaining is rounded up": misreporting(func(l Limit, d *quota.Decision) {
		if d.ResetAfter < l.tolerance {
			d.Remaining = (l.tolerance - d.ResetAfter + l.emission - 1) / l.emission
		}
	}),
	"remaining is below zero in debt": misreporting(func(l Limit, d *quota.Decision) {
		if l.emission > 0 {
			d.Remaining = (l.tolerance - d.ResetAfter) / l.emission
		}
	}),
}

// misreporting makes a step that stores the right state and returns a wrong decision.
func misreporting(falsify func(l Limit, d *quota.Decision)) stepFunc {
	return func(l Limit, now, tat, quantity int64, mode quota.Mode) (quota.Decision, int64, error) {
		d, next, err := l.Step(now, tat, quantity, mode)
		if err == nil {
			falsify(l, &d)
		}
		return d, next, err
	}
}

// A call is the case of most properties. It is plausible enough that no sum of its numbers
// overflows an int64.
type call struct {
	l                  Limit
	now, tat, quantity int64
	mode               quota.Mode
}

func (c call) step(step stepFunc) (quota.Decision, int64, error) {
	return step(c.l, c.now, c.tat, c.quantity, c.mode)
}

// fits reports whether quantity could be taken at now.
func (l Limit) fits(step stepFunc, now, tat, quantity int64) bool {
	d, _, err := step(l, now, tat, quantity, quota.Take)
	return err == nil && !d.Limited
}

// drawLimit draws common limits, fast ones, and any E and size whose span is at most span ns.
func drawLimit(t *rapid.T, span int64) Limit {
	between := func(lo, hi int64, label string) int64 { return rapid.Int64Range(lo, hi).Draw(t, label) }
	var maxBurst, count, period int64
	switch rapid.IntRange(0, 2).Draw(t, "kind of limit") {
	case 0:
		maxBurst, count, period = between(-1, 50, "max_burst"), between(1, 100, "count"), between(1, 3600, "period")
	case 1:
		period = between(1, 60, "period")
		maxBurst, count = between(0, 1000, "max_burst"), between(1000, period*1e9, "count")
	default:
		period = between(1, span/1e9, "period")
		count = between(1, 1e9, "count")
		l, err := NewLimit(0, count, quota.Seconds(period))
		require.NoError(t, err)
		maxBurst = between(0, span/l.emission-1, "max_burst")
	}
	l, err := NewLimit(maxBurst, count, quota.Seconds(period))
	require.NoError(t, err)
	return l
}

// drawCall draws a state at or near the edge of a token, anywhere in the bucket, or in debt.
func drawCall(t *rapid.T, modes ...quota.Mode) call {
	const span = 1 << 60 // 36 years: an epoch, a debt, a forced quantity and a wait add up to less than 2^63
	l := drawLimit(t, span)
	level := rapid.OneOf(
		rapid.Just(int64(0)),
		rapid.Map(rapid.Int64Range(0, l.size), func(tokens int64) int64 { return tokens * l.emission }),
		rapid.Int64Range(0, l.tolerance),
		rapid.Int64Range(l.tolerance, l.tolerance+span),
	).Draw(t, "level")
	level = max(0, level+rapid.Int64Range(-1, 1).Draw(t, "off by"))
	now := epoch + rapid.Int64Range(0, 1e10).Draw(t, "now")
	tat := now + level
	if level == 0 {
		tat = rapid.SampledFrom([]int64{0, now, now - 1, now - l.emission}).Draw(t, "tat")
	}
	quantity := rapid.OneOf(
		rapid.Int64Range(-3, 3),
		rapid.Int64Range(-l.size-2, l.size+2),
		rapid.Int64Range(l.size-2, l.size+2),
	).Draw(t, "quantity")
	return call{l, now, tat, quantity, rapid.SampledFrom(modes).Draw(t, "mode")}
}

// stepAgrees compares step with the model for plausible and for arbitrary calls.
func stepAgrees(t *rapid.T, step stepFunc) error {
	c := drawCall(t, quota.Take, quota.Peek, quota.UpTo, quota.Force)
	if rapid.Bool().Draw(t, "raw instants") {
		c.now, c.tat = anyInt64().Draw(t, "now"), anyInt64().Draw(t, "tat")
	}
	if rapid.Bool().Draw(t, "raw quantity") {
		c.quantity = anyInt64().Draw(t, "quantity")
	}
	if rapid.Bool().Draw(t, "largest limit") {
		c.l = drawLimit(t, maxTolerance)
	}
	return differsFromModel(step, c.l, c.now, c.tat, c.quantity, c.mode)
}

// intervalIsBounded checks the guarantee: over every interval of the calls on one key, equal
// instants included, what was admitted minus what was refunded costs at most T + t. It sums in ns,
// to avoid rounding. Refunds are limited to what is in the bucket; forced quantities are outside
// the guarantee.
func intervalIsBounded(t *rapid.T, step stepFunc) error {
	l := drawLimit(t, 1<<54) // 80 costs and gaps add up to less than 2^62
	now, tat := epoch+rapid.Int64Range(0, 1e7).Draw(t, "start"), int64(0)
	gaps := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 2*l.emission), rapid.Int64Range(0, l.tolerance))
	var at, cost []int64
	for range rapid.IntRange(1, 40).Draw(t, "calls") {
		now += gaps.Draw(t, "gap")
		quantity := rapid.OneOf(rapid.Int64Range(1, 3), rapid.Int64Range(-l.size, l.size+1)).Draw(t, "quantity")
		mode := rapid.SampledFrom([]quota.Mode{quota.Take, quota.UpTo, quota.Peek}).Draw(t, "mode")
		d, next, err := step(l, now, tat, quantity, mode)
		if err != nil {
			return err
		}
		if mode != quota.Peek {
			came := d.Taken * l.emission
			if quantity < 0 { // in ns, because Taken is in whole tokens
				came = max(next-now, 0) - max(tat-now, 0)
			}
			at, cost = append(at, now), append(cost, came)
		}
		if tat = next; next <= now {
			tat = 0
		}
	}
	return firstExcess(l, at, cost)
}

// firstExcess finds an interval, including both ends, that admitted more than the guarantee allows.
func firstExcess(l Limit, at, cost []int64) error {
	for i := range at {
		admitted := int64(0)
		for j := i; j < len(at); j++ {
			admitted += cost[j]
			if admitted > l.tolerance+at[j]-at[i] {
				return fmt.Errorf("%+v: calls %d to %d cost %d ns in %d ns", l, i, j, admitted, at[j]-at[i])
			}
		}
	}
	return nil
}

func decisionIsBounded(t *rapid.T, step stepFunc) error {
	c := drawCall(t, quota.Take, quota.Peek, quota.UpTo, quota.Force)
	d, next, err := c.step(step)
	switch {
	case err != nil:
		return err
	case d.Limit != c.l.size, d.Remaining < 0, d.Remaining > d.Limit, d.ResetAfter < 0, next < 0:
		return fmt.Errorf("%+v: %+v, next %d", c, d, next)
	case d.Limited && d.RetryAfter <= 0 && d.RetryAfter != quota.Never, !d.Limited && d.RetryAfter != quota.Never:
		return fmt.Errorf("%+v: limited %t, retry %d", c, d.Limited, d.RetryAfter)
	}
	return nil
}

// retryIsExact waits for RetryAfter, in each unit that a reply may use, rounded up as in replies.
// Then the quantity must be admitted, and one unit earlier it must not. Never means that even an
// unused key would refuse it.
func retryIsExact(t *rapid.T, step stepFunc) error {
	c := drawCall(t, quota.Take, quota.Peek, quota.UpTo, quota.Force)
	d, next, err := c.step(step)
	if err != nil || !d.Limited {
		return err
	}
	wanted := c.quantity
	if c.quantity > 0 && (c.mode == quota.UpTo || c.mode == quota.Force) {
		wanted = 1
	}
	if d.RetryAfter == quota.Never {
		if c.l.fits(step, c.now, 0, wanted) {
			return fmt.Errorf("%+v: never, but an unused key admits %d", c, wanted)
		}
		return nil
	}
	for _, unit := range []int64{1, 1e6, 1e9} {
		wait := (d.RetryAfter + unit - 1) / unit * unit
		if !c.l.fits(step, c.now+wait, next, wanted) {
			return fmt.Errorf("%+v: %d is still limited after %d", c, wanted, wait)
		}
		if c.l.fits(step, c.now+wait-unit, next, wanted) {
			return fmt.Errorf("%+v: %d was admitted %d before %d", c, wanted, unit, wait)
		}
	}
	return nil
}

// resetIsExact checks that the quota is full after ResetAfter, and not one ns earlier.
func resetIsExact(t *rapid.T, step stepFunc) error {
	c := drawCall(t, quota.Take, quota.UpTo, quota.Force)
	d, next, err := c.step(step)
	if err != nil {
		return err
	}
	if c.l.Blocks(c.quantity, c.mode) {
		return nil // the state does not matter
	}
	reset := c.now + d.ResetAfter
	if !c.l.fits(step, reset, next, c.l.size) || next > reset {
		return fmt.Errorf("%+v: still used after %d", c, d.ResetAfter)
	}
	if d.ResetAfter > 0 && (c.l.fits(step, reset-1, next, c.l.size) || next <= reset-1) {
		return fmt.Errorf("%+v: unused before %d", c, d.ResetAfter)
	}
	return nil
}

func remainingIsExact(t *rapid.T, step stepFunc) error {
	c := drawCall(t, quota.Take, quota.UpTo, quota.Force)
	d, next, err := c.step(step)
	if err != nil {
		return err
	}
	if d.Remaining != 0 && !c.l.fits(step, c.now, next, d.Remaining) {
		return fmt.Errorf("%+v: %d remain, but cannot be taken", c, d.Remaining)
	}
	if c.l.fits(step, c.now, next, d.Remaining+1) {
		return fmt.Errorf("%+v: %d remain, but one more can be taken", c, d.Remaining)
	}
	return nil
}

func givingBackCancels(t *rapid.T, step stepFunc) error {
	c := drawCall(t, quota.Take, quota.UpTo, quota.Force)
	d, taken, err := c.step(step)
	if err != nil || d.Taken <= 0 {
		return err
	}
	_, back, err := step(c.l, c.now, taken, -d.Taken, c.mode)
	if err != nil {
		return err
	}
	if back != c.tat && (back > c.now || c.tat > c.now) {
		return fmt.Errorf("%+v: %d taken and given back leave %d", c, d.Taken, back)
	}
	return nil
}

func peekIsHonest(t *rapid.T, step stepFunc) error {
	c := drawCall(t, quota.Peek)
	said, next, err := c.step(step)
	if err != nil {
		return err
	}
	did, _, err := step(c.l, c.now, c.tat, c.quantity, quota.Take)
	if said != did || next != c.tat {
		return fmt.Errorf("%+v: said %+v, did %+v, stored %d", c, said, did, next)
	}
	return err
}

func upToIsMost(t *rapid.T, step stepFunc) error {
	c := drawCall(t, quota.UpTo)
	d, _, err := c.step(step)
	switch {
	case err != nil || c.quantity <= 0:
		return err
	case d.Taken < 0, d.Taken > c.quantity, d.Limited != (d.Taken == 0):
		return fmt.Errorf("%+v: took %d, limited %t", c, d.Taken, d.Limited)
	case d.Taken > 0 && !c.l.fits(step, c.now, c.tat, d.Taken):
		return fmt.Errorf("%+v: took %d, which do not fit", c, d.Taken)
	case d.Taken < c.quantity && c.l.fits(step, c.now, c.tat, d.Taken+1):
		return fmt.Errorf("%+v: took %d, one more fits", c, d.Taken)
	}
	return nil
}
