package quota

import "math"

// Leave makes a step of a limiter that leaves n of its limit to other calls. It decides as a step with
// a limit that is lower by n does, but Limit and Remaining are the whole limit's. take makes a
// step without regard to n; Leave calls it once or twice, and the state must not change in between
// but by take. n is not negative, and has no effect on a refund or in mode Force.
//
// A step admits a quantity with the lower limit if and only if it would admit n more with the whole
// limit, at the same time; so no algorithm needs to know of n.
func Leave(n, quantity int64, mode Mode, take func(quantity int64, mode Mode) (Decision, error)) (Decision, error) {
	switch {
	case n == 0 || quantity < 0 || mode == Force:
		return take(quantity, mode)
	case mode == UpTo && quantity > 0:
		return leaveUpTo(n, quantity, take)
	case quantity > math.MaxInt64-n:
		d, err := take(0, Peek)
		d.Limited, d.RetryAfter = true, Never
		return d, err
	}
	d, err := take(quantity+n, Peek)
	if err != nil || d.Limited {
		return d, err
	}
	return take(quantity, mode)
}

func leaveUpTo(n, quantity int64, take func(quantity int64, mode Mode) (Decision, error)) (Decision, error) {
	d, err := take(0, Peek)
	if err != nil {
		return d, err
	}
	if free := d.Remaining - n; free > 0 {
		return take(min(quantity, free), UpTo)
	}
	if n == math.MaxInt64 {
		d.Limited, d.RetryAfter = true, Never
		return d, nil
	}
	return take(n+1, Peek)
}
