package window

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/quota"
)

// A property draws a case, calls step and reports what is wrong. It takes the step as an argument
// so that the property itself can be tested: each lists the planted faults that it must detect. The
// kind knows how to reach a valid state.
type property[S any] struct {
	name    string
	check   func(t *rapid.T, k kind[S], step stepFunc[S]) error
	catches []string
}

func properties[S any](agree ...string) []property[S] {
	return []property[S]{
		{"a step is the model's", stepAgrees[S], append(agree,
			"admits one too many", "a period and one ns", "a period less one ns", "loses what is given back", "peek stores",
			"peek says what is", "UPTO is all or nothing", "a forced debt is forgotten", "retry in whole ms",
			"retry one ns late", "retry never", "reset one ns early", "remaining one too many", "remaining one too few",
			"says that all came back", "a limit of 0 looks at the key")},
		{"a period admits at most its bound", intervalIsBounded[S], []string{"admits one too many"}},
		{"a decision stays in its bounds", decisionIsBounded[S], []string{
			"remaining one too many", "remaining one too few", "reset one ns early",
		}},
		{"retry_after is exact, in ns, ms and seconds", retryIsExact[S], []string{
			"retry in whole ms", "retry one ns late", "retry never",
		}},
		{"reset_after is exact", resetIsExact[S], []string{"reset one ns early"}},
		{"remaining can be taken, and one more cannot", remainingIsExact[S], []string{
			"remaining one too many", "remaining one too few", "a forced debt is forgotten",
		}},
		{"taking and giving back cancels", givingBackCancels[S], []string{
			"loses what is given back", "a forced debt is forgotten",
		}},
		{"a peek says what a take would, and stores nothing", peekIsHonest[S], []string{"peek stores", "peek says what is"}},
		{"UPTO takes the most that fits", upToIsMost[S], []string{"UPTO is all or nothing"}},
	}
}

func TestFixed(t *testing.T)   { checkKind(t, fixed, fixedFaults) }
func TestSliding(t *testing.T) { checkKind(t, sliding, slidingFaults, "retry is reset") }
func TestLog(t *testing.T)     { checkKind(t, log, logFaults, "retry is reset") }

// checkKind also requires the model to detect the kind's own faults, and faults that do not apply
// to all kinds: the wait of a fixed window equals its reset.
func checkKind[S any](t *testing.T, k kind[S], own map[string]stepFunc[S], agree ...string) {
	faults := maps.Clone(k.faults)
	for name, fault := range own {
		faults[name] = fault
		agree = append(agree, name)
	}
	for _, p := range properties[S](agree...) {
		t.Run(p.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { requireHolds(t, p.check(t, k, k.step)) })
		})
		for _, name := range p.catches {
			t.Run(p.name+" catches: "+name, func(t *testing.T) {
				require.Contains(t, faults, name)
				requireCaught(t, func(t *rapid.T) error { return p.check(t, k, faults[name]) })
			})
		}
	}
}

// A call is the case of most properties.
type call[S any] struct {
	l        Limit
	now      int64
	s        S
	quantity int64
	mode     quota.Mode
}

func (c call[S]) step(step stepFunc[S]) (quota.Decision, S, error) {
	return step(c.l, c.now, c.s, c.quantity, c.mode)
}

// fits reports whether quantity could be taken at now.
func fits[S any](step stepFunc[S], l Limit, now int64, s S, quantity int64) bool {
	d, _, err := step(l, now, s, quantity, quota.Take)
	return err == nil && !d.Limited
}

func drawLimit(t *rapid.T) Limit {
	size := rapid.OneOf(rapid.Int64Range(0, 10), rapid.Int64Range(0, 1000), rapid.Int64Range(0, 1<<62)).Draw(t, "limit")
	period := rapid.OneOf(rapid.Int64Range(1, 3), rapid.Int64Range(1, 86400), rapid.Int64Range(1, 1e8)).Draw(t, "period")
	l, err := NewLimit(size, quota.Seconds(period))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// anotherLimit returns usually the same limit, sometimes a changed one.
func anotherLimit(t *rapid.T, l Limit) Limit {
	switch rapid.IntRange(0, 5).Draw(t, "change") {
	case 0:
		l.size = rapid.OneOf(rapid.Int64Range(0, 10), rapid.Int64Range(0, 2*(l.size/2))).Draw(t, "changed limit")
	case 1:
		seconds := l.period / 1e9
		l.period = 1e9 * rapid.Int64Range(max(1, seconds/3), seconds*3).Draw(t, "changed period")
	}
	return l
}

// drawGap draws the time between two calls: none, 1 ns, any, or up to where something ends.
func drawGap(t *rapid.T, l Limit) int64 {
	return rapid.OneOf(
		rapid.Just(int64(0)), rapid.Int64Range(0, 2), rapid.Int64Range(0, l.period/2), rapid.Int64Range(0, l.period*5/2),
		rapid.Int64Range(l.period-1, l.period+1), rapid.Int64Range(2*l.period-1, 2*l.period+1),
	).Draw(t, "gap")
}

func drawQuantity(t *rapid.T, l Limit) int64 {
	return rapid.OneOf(
		rapid.Int64Range(-3, 5), rapid.Int64Range(0, l.size), rapid.Int64Range(-l.size, l.size+1), rapid.Just(l.size),
		rapid.Int64Range(max(0, l.size-2), l.size+2),
	).Draw(t, "quantity")
}

var everyMode = []quota.Mode{quota.Take, quota.Peek, quota.UpTo, quota.Force}

// drawCall reaches a state by calls under changing limits, and draws one more call.
func drawCall[S any](t *rapid.T, k kind[S], modes ...quota.Mode) call[S] {
	c := call[S]{l: drawLimit(t), now: epoch + rapid.Int64Range(0, 1e10).Draw(t, "start")}
	original := c.l
	for range rapid.IntRange(0, 8).Draw(t, "calls before") {
		c.l = anotherLimit(t, original)
		c.now += drawGap(t, c.l) / 4 // so that the sum of the gaps stays in range
		mode := rapid.SampledFrom(everyMode).Draw(t, "mode before")
		if _, next, err := k.step(c.l, c.now, c.s, drawQuantity(t, c.l), mode); err == nil {
			c.s = next
		}
	}
	c.l = anotherLimit(t, original)
	gap := drawGap(t, c.l)
	if rapid.Bool().Draw(t, "shorter gap") {
		gap /= 8
	}
	c.now += gap
	c.quantity = drawQuantity(t, c.l)
	c.mode = rapid.SampledFrom(modes).Draw(t, "mode")
	return c
}

// stepAgrees compares step with the model for plausible and for arbitrary calls.
func stepAgrees[S any](t *rapid.T, k kind[S], step stepFunc[S]) error {
	c := drawCall(t, k, everyMode...)
	switch rapid.IntRange(0, 7).Draw(t, "raw") {
	case 0:
		c.now = anyInt64().Draw(t, "now")
	case 1:
		c.quantity = anyInt64().Draw(t, "quantity")
	case 2:
		c.now -= rapid.Int64Range(0, 2*c.l.period).Draw(t, "clock runs back")
	}
	return differs(step, k.model, c.l, c.now, c.s, c.quantity, c.mode)
}

// intervalIsBounded checks the guarantee of each kind: in every half-open interval of one period no
// more than the bound is admitted, minus what was refunded, which is taken off the newest. Forced
// quantities and changed limits are outside the guarantee.
func intervalIsBounded[S any](t *rapid.T, k kind[S], step stepFunc[S]) error {
	l := drawLimit(t)
	l.size = min(l.size, rapid.SampledFrom([]int64{1, 5, 1e15}).Draw(t, "at most"))
	now := epoch
	var s S
	var at, admitted []int64
	for range rapid.IntRange(1, 40).Draw(t, "calls") {
		now += drawGap(t, l) / 16
		mode := rapid.SampledFrom([]quota.Mode{quota.Take, quota.UpTo, quota.Peek}).Draw(t, "mode")
		held := k.held(l, now, s)
		d, next, err := step(l, now, s, drawQuantity(t, l), mode)
		if err != nil {
			return err
		}
		s = next
		if mode == quota.Peek {
			continue
		}
		at, admitted = append(at, now), append(admitted, max(d.Taken, 0))
		back := min(max(0, -d.Taken), held)
		for i := len(at) - 1; i >= 0 && back > 0; i-- {
			off := min(back, admitted[i])
			admitted[i] -= off
			back -= off
		}
	}
	for i := range at {
		sum := int64(0)
		for j := i; j < len(at) && at[j]-at[i] < l.period; j++ {
			if sum += admitted[j]; sum > k.bound(l) {
				return fmt.Errorf("%+v: calls %d to %d admit %d in %d ns", l, i, j, sum, at[j]-at[i])
			}
		}
	}
	return nil
}

func decisionIsBounded[S any](t *rapid.T, k kind[S], step stepFunc[S]) error {
	c := drawCall(t, k, everyMode...)
	if rapid.IntRange(0, 3).Draw(t, "raw quantity") == 0 {
		c.quantity = anyInt64().Draw(t, "quantity")
	}
	return outOfBounds(step, c.l, c.now, c.s, c.quantity, c.mode)
}

// retryIsExact waits for RetryAfter, in each unit that a reply may use, rounded up as in replies.
// Then the quantity must be admitted, and one unit earlier it must not. Never means that even an
// unused key would refuse it.
func retryIsExact[S any](t *rapid.T, k kind[S], step stepFunc[S]) error {
	c := drawCall(t, k, everyMode...)
	d, next, err := c.step(step)
	if err != nil || !d.Limited {
		return nil
	}
	wanted := c.quantity
	if c.quantity > 0 && (c.mode == quota.UpTo || c.mode == quota.Force) {
		wanted = 1
	}
	if d.RetryAfter == quota.Never {
		var unused S
		if fits(step, c.l, c.now, unused, wanted) {
			return fmt.Errorf("%+v: never, but an unused key admits %d", c, wanted)
		}
		return nil
	}
	for _, unit := range []int64{1, 1e6, 1e9} {
		wait := (d.RetryAfter + unit - 1) / unit * unit
		if !fits(step, c.l, c.now+wait, next, wanted) {
			return fmt.Errorf("%+v: %d is still limited after %d", c, wanted, wait)
		}
		if fits(step, c.l, c.now+wait-unit, next, wanted) {
			return fmt.Errorf("%+v: %d was admitted %d before %d", c, wanted, unit, wait)
		}
	}
	return nil
}

// resetIsExact checks that the quota is full after ResetAfter, and not one ns earlier. It uses a
// limit of 0, which is in debt as long as anything is in view.
func resetIsExact[S any](t *rapid.T, k kind[S], step stepFunc[S]) error {
	c := drawCall(t, k, quota.Take, quota.UpTo, quota.Force)
	d, next, err := c.step(step)
	if err != nil {
		return nil
	}
	if c.l.Blocks(c.quantity, c.mode) {
		return nil // the state does not matter
	}
	nothing := Limit{size: 0, period: k.decides(c.l, c.now, c.s).period} // its period must decide if the call's does now
	reset := c.now + d.ResetAfter
	if !fits(step, nothing, reset, next, 0) {
		return fmt.Errorf("%+v: still used after %d", c, d.ResetAfter)
	}
	if d.ResetAfter > 0 && fits(step, nothing, reset-1, next, 0) {
		return fmt.Errorf("%+v: unused before %d", c, d.ResetAfter)
	}
	return nil
}

func remainingIsExact[S any](t *rapid.T, k kind[S], step stepFunc[S]) error {
	c := drawCall(t, k, quota.Take, quota.UpTo, quota.Force)
	d, next, err := c.step(step)
	if err != nil {
		return nil
	}
	if d.Remaining != 0 && !fits(step, c.l, c.now, next, d.Remaining) {
		return fmt.Errorf("%+v: %d remain, but cannot be taken", c, d.Remaining)
	}
	if fits(step, c.l, c.now, next, d.Remaining+1) {
		return fmt.Errorf("%+v: %d remain, but one more can be taken", c, d.Remaining)
	}
	return nil
}

// givingBackCancels checks that taking and refunding at the same instant leaves the same in view,
// then and later. In a full log, entries have been joined, and leave later than they would have
// left alone.
func givingBackCancels[S any](t *rapid.T, k kind[S], step stepFunc[S]) error {
	c := drawCall(t, k, quota.Take, quota.UpTo, quota.Force)
	d, taken, err := c.step(step)
	if err != nil || d.Taken <= 0 {
		return nil
	}
	_, back, err := step(c.l, c.now, taken, -d.Taken, c.mode)
	if err != nil {
		return err
	}
	before, after := k.held(c.l, c.now, c.s), k.held(c.l, c.now, back)
	if before != after {
		return fmt.Errorf("%+v: %d taken and given back turn %d into %d", c, d.Taken, before, after)
	}
	return nil
}

func peekIsHonest[S any](t *rapid.T, k kind[S], step stepFunc[S]) error {
	c := drawCall(t, k, quota.Peek)
	said, next, err := c.step(step)
	if err != nil {
		return err
	}
	did, _, err := step(c.l, c.now, c.s, c.quantity, quota.Take)
	if said != did || !same(next, c.s) {
		return fmt.Errorf("%+v: said %+v, did %+v, stored %+v", c, said, did, next)
	}
	return err
}

func upToIsMost[S any](t *rapid.T, k kind[S], step stepFunc[S]) error {
	c := drawCall(t, k, quota.UpTo)
	d, _, err := c.step(step)
	switch {
	case err != nil || c.quantity <= 0:
		return err
	case d.Taken < 0, d.Taken > c.quantity, d.Limited != (d.Taken == 0):
		return fmt.Errorf("%+v: took %d, limited %t", c, d.Taken, d.Limited)
	case d.Taken > 0 && !fits(step, c.l, c.now, c.s, d.Taken):
		return fmt.Errorf("%+v: took %d, which do not fit", c, d.Taken)
	case d.Taken < c.quantity && fits(step, c.l, c.now, c.s, d.Taken+1):
		return fmt.Errorf("%+v: took %d, one more fits", c, d.Taken)
	}
	return nil
}

// TestUntilMidnight calls one key with the rest of the day, in seconds, as the period, so that the
// count restarts at midnight. Whenever the calls come, a day admits no more than the limit. For the
// sliding window counter this holds on the first day only; later the previous day counts too, and
// the bound is that of any period.
func TestUntilMidnight(t *testing.T) {
	forgetful := fixedFaults["the window is read by the call's own period"]
	t.Run("fixed", func(t *testing.T) { checkMidnight(t, fixed, 1e9, 3, forgetful) })
	t.Run("fixed, between the seconds", func(t *testing.T) { checkMidnight(t, fixed, 1, 1, forgetful) })
	t.Run("sliding", func(t *testing.T) {
		checkMidnight(t, sliding, 1e9, 1,
			slidingFaults["the call's own period decides"])
	})
	t.Run("log", func(t *testing.T) { checkMidnight(t, log, 1e9, 3, logFaults["the call's own period decides"]) })
}

// checkMidnight makes calls at multiples of a tick. A period is in whole seconds, so the rest of
// the day, rounded up, may reach into the next day.
func checkMidnight[S any](t *testing.T, k kind[S], tick int64, days int, faulty stepFunc[S]) {
	check := func(t *rapid.T, step stepFunc[S]) error {
		const day, size = int64(86400e9), 10
		midnight := epoch / day * day
		var s S
		for range days {
			admitted, now, next := int64(0), midnight, midnight+day
			for range rapid.IntRange(0, 12).Draw(t, "calls") {
				now += rapid.OneOf(rapid.Int64Range(0, 5e9), rapid.Int64Range(0, day/2)).Draw(t, "gap") / tick * tick
				if now >= next {
					break
				}
				l := Limit{size: size, period: (next - now + 1e9 - 1) / 1e9 * 1e9}
				d, after, err := step(l, now, s, rapid.Int64Range(1, size).Draw(t, "quantity"), quota.UpTo)
				if err != nil {
					return err
				}
				s = after
				if admitted += d.Taken; admitted > size {
					return fmt.Errorf("%d ns after midnight %d are admitted", now-midnight, admitted)
				}
			}
			midnight = next
		}
		return nil
	}
	rapid.Check(t, func(t *rapid.T) { requireHolds(t, check(t, k.step)) })
	requireCaught(t, func(t *rapid.T) error { return check(t, faulty) })
}

// TestAnotherPeriodForgetsNothing checks that from the call that finds a key unused until the
// period it names has passed, no more than the limit is admitted, whatever periods the calls
// between name.
func TestAnotherPeriodForgetsNothing(t *testing.T) {
	t.Run("fixed", func(t *testing.T) {
		checkPeriods(t, fixed, fixedFaults["the window is read by the call's own period"],
			fixedFaults["the latest period ends the window"])
	})
	t.Run("sliding", func(t *testing.T) { checkPeriods(t, sliding, slidingFaults["the call's own period decides"]) })
	t.Run("log", func(t *testing.T) { checkPeriods(t, log, logFaults["the call's own period decides"]) })
}

func checkPeriods[S any](t *testing.T, k kind[S], faults ...stepFunc[S]) {
	check := func(t *rapid.T, step stepFunc[S]) error {
		var s, unused S
		l := Limit{size: rapid.Int64Range(1, 8).Draw(t, "limit")}
		now, since, until, admitted := epoch, int64(0), int64(0), int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "calls") {
			now += rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, 12e9)).Draw(t, "gap")
			l.period = 1e9 * rapid.SampledFrom([]int64{1, 2, 3, 10, 60}).Draw(t, "period")
			mode := rapid.SampledFrom([]quota.Mode{quota.Take, quota.UpTo, quota.Peek}).Draw(t, "mode")
			d, next, err := step(l, now, s, rapid.Int64Range(0, l.size+1).Draw(t, "quantity"), mode)
			switch {
			case err != nil:
				return err
			case mode == quota.Peek:
				continue
			case d.Taken > 0 && same(s, unused):
				since, until, admitted = now, now+l.period, 0
			}
			s = next
			if admitted += d.Taken; now < until && admitted > l.size {
				return fmt.Errorf("%d of %d are admitted within %d ns of %d", admitted, l.size, now-since, until-since)
			}
		}
		return nil
	}
	rapid.Check(t, func(t *rapid.T) { requireHolds(t, check(t, k.step)) })
	for _, faulty := range faults {
		requireCaught(t, func(t *rapid.T) error { return check(t, faulty) })
	}
}
