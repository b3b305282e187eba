package window

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"cellserver/internal/quota"
)

// epoch is the start of timelines and properties: a day of 2027, in Unix ns.
const epoch = int64(1_800_000_000_000_000_000)

// stepFunc is the type of all steps in these tests; S is the state of a key. Checks take the step
// as an argument, so that they can be run on a faulty step.
type stepFunc[S any] func(l Limit, now int64, s S, quantity int64, mode quota.Mode) (quota.Decision, S, error)

// kind describes one of the three limiters for the tests.
type kind[S any] struct {
	step, model stepFunc[S]
	decides     func(l Limit, now int64, s S) Limit // the limit whose period decides a call
	held        func(l Limit, now int64, s S) int64 // the most that a refund could give back
	bound       func(l Limit) int64                 // the most that an interval of one period may admit
	faults      map[string]stepFunc[S]
}

var fixed = kind[Fixed]{
	step:    Limit.StepFixed,
	model:   modelFixed,
	decides: func(l Limit, _ int64, _ Fixed) Limit { return l },
	held:    func(l Limit, now int64, s Fixed) int64 { return readFixed(now, s).Used },
	bound:   func(l Limit) int64 { return 2 * l.size },
	faults:  faultsOf(Limit.StepFixed),
}

var sliding = kind[Sliding]{
	step:  Limit.StepSliding,
	model: modelSliding,
	decides: func(l Limit, now int64, s Sliding) Limit {
		return l.deciding(now, s.windows().period(), min(s.Until, s.End))
	},
	held: func(l Limit, now int64, s Sliding) int64 {
		w := readSliding(l.deciding(now, s.windows().period(), min(s.Until, s.End)), now, s)
		return w.Previous + w.Current
	},
	bound:  func(l Limit) int64 { return max(2*l.size-2, min(l.size, 1)) },
	faults: faultsOf(Limit.StepSliding),
}

var log = kind[logState]{
	step:    stepLog,
	model:   modelLog,
	decides: func(l Limit, now int64, s logState) Limit { return l.deciding(now, s.period(), min(s.Until, s.End)) },
	held: func(l Limit, now int64, s logState) int64 {
		r := readLog(s.limit(l.deciding(now, s.period(), min(s.Until, s.End))), now, s)
		return r.used
	},
	bound:  func(l Limit) int64 { return l.size },
	faults: faultsOf(stepLog),
}

// logState is the state of a log that the store keeps. A step never changes the state passed to it.
type logState struct {
	Log
	entries list
	spare   int // the number of entries that fit, minus 3, so that the zero state has room for a few
}

type list []Entry

func (l list) Len() int       { return len(l) }
func (l list) At(i int) Entry { return l[i] }

// edited returns the list after an edit, as the deque of a store would hold it.
func (l list) edited(e Edit) list {
	kept := slices.Clone(l[e.Drop : len(l)-e.Cut])
	if e.Push {
		kept = append(kept, e.Entry)
	}
	return kept
}

func (s logState) period() int64 {
	_, period := s.newest(s.entries)
	return period
}

func readLog(l LogLimit, now int64, s logState) logView {
	newest, _ := s.newest(s.entries)
	return l.readLog(now, s.Log, s.entries, newest)
}

func (s logState) limit(l Limit) LogLimit { return LogLimit{Limit: l, maxEntries: s.spare + 3} }

func stepLog(l Limit, now int64, s logState, quantity int64, mode quota.Mode) (quota.Decision, logState, error) {
	d, next, edit, err := s.limit(l).StepLog(now, s.Log, s.entries, quantity, mode)
	if (edit == Edit{}) {
		return d, s, err
	}
	after := logState{Log: next, entries: s.entries.edited(edit), spare: s.spare}
	if len(after.entries) == 0 { // the store removes the key
		after.Log, after.entries = Log{}, nil
	}
	return d, after, err
}

// TestMain runs more than rapid's default of 100 cases; a flag on the command line takes
// precedence.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "300"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func requireHolds(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// requireCaught requires check to report something. The seeds are fixed.
func requireCaught(t *testing.T, check func(*rapid.T) error) {
	draws := rapid.Custom(check)
	for seed := range 10_000 {
		if draws.Example(seed) != nil {
			return
		}
	}
	t.Fatal("the planted fault was not detected")
}

// same compares two states. The slice of a log may be nil or empty.
func same[S any](a, b S) bool {
	return reflect.DeepEqual(a, b) || fmt.Sprint(a) == fmt.Sprint(b)
}

// faultsOf returns faulty steps for a limiter of any kind, each wrong in one way.
func faultsOf[S any](step stepFunc[S]) map[string]stepFunc[S] {
	faults := misreports(step)
	maps.Copy(faults, miscounts(step))
	maps.Copy(faults, misunderstandsModes(step))
	return faults
}

// miscounts returns steps that use a wrong limit, or lose a refund.
func miscounts[S any](step stepFunc[S]) map[string]stepFunc[S] {
	return map[string]stepFunc[S]{
		"admits one too many": func(l Limit, now int64, s S, quantity int64, mode quota.Mode) (quota.Decision, S, error) {
			d, next, err := step(Limit{size: l.size + 1, period: l.period}, now, s, quantity, mode)
			d.Limit = l.size
			return d, next, err
		},
		"a period and one ns": func(l Limit, now int64, s S, quantity int64, mode quota.Mode) (quota.Decision, S, error) {
			return step(Limit{size: l.size, period: l.period + 1}, now, s, quantity, mode)
		},
		"a period less one ns": func(l Limit, now int64, s S, quantity int64, mode quota.Mode) (quota.Decision, S, error) {
			return step(Limit{size: l.size, period: l.period - 1}, now, s, quantity, mode)
		},
		"loses what is given back": func(
			l Limit, now int64, s S, quantity int64, mode quota.Mode,
		) (quota.Decision, S, error) {
			d, next, err := step(l, now, s, quantity, mode)
			if quantity < 0 {
				next = s
			}
			return d, next, err
		},
	}
}

// misunderstandsModes returns steps that do not do what the mode says.
func misunderstandsModes[S any](step stepFunc[S]) map[string]stepFunc[S] {
	return map[string]stepFunc[S]{
		"peek stores": func(l Limit, now int64, s S, quantity int64, mode quota.Mode) (quota.Decision, S, error) {
			if mode == quota.Peek {
				mode = quota.Take
			}
			return step(l, now, s, quantity, mode)
		},
		"peek says what is": func(l Limit, now int64, s S, quantity int64, mode quota.Mode) (quota.Decision, S, error) {
			if mode == quota.Peek {
				quantity = 0
			}
			return step(l, now, s, quantity, mode)
		},
		"UPTO is all or nothing": func(
			l Limit, now int64, s S, quantity int64, mode quota.Mode,
		) (quota.Decision, S, error) {
			if mode == quota.UpTo {
				mode = quota.Take
			}
			return step(l, now, s, quantity, mode)
		},
		"a forced debt is forgotten": func(
			l Limit, now int64, s S, quantity int64, mode quota.Mode,
		) (quota.Decision, S, error) {
			d, next, err := step(l, now, s, quantity, mode)
			if mode == quota.Force && d.Limited {
				next = s
			}
			return d, next, err
		},
	}
}

// misreports returns steps that store the right state and return a wrong decision.
func misreports[S any](step stepFunc[S]) map[string]stepFunc[S] {
	return map[string]stepFunc[S]{
		"says that all came back": func(l Limit, now int64, s S, quantity int64, mode quota.Mode) (quota.Decision, S, error) {
			d, next, err := step(l, now, s, quantity, mode)
			if quantity < 0 {
				d.Taken = quantity
			}
			return d, next, err
		},
		"a limit of 0 looks at the key": func(
			l Limit, now int64, s S, quantity int64, mode quota.Mode,
		) (quota.Decision, S, error) {
			d, next, err := step(l, now, s, quantity, mode)
			if l.Blocks(quantity, mode) {
				asked, _, _ := step(l, now, s, 0, mode)
				d.ResetAfter = asked.ResetAfter
			}
			return d, next, err
		},
		"retry in whole ms": misreporting(step, func(d *quota.Decision) {
			if d.RetryAfter > 0 {
				d.RetryAfter -= d.RetryAfter % 1e6
			}
		}),
		"retry one ns late": misreporting(step, func(d *quota.Decision) {
			if d.RetryAfter > 0 {
				d.RetryAfter++
			}
		}),
		"retry never": misreporting(step, func(d *quota.Decision) { d.RetryAfter = quota.Never }),
		"retry is reset": misreporting(step,
			func(d *quota.Decision) { d.RetryAfter = min(d.RetryAfter, 1) * d.ResetAfter }),
		"reset one ns early":     misreporting(step, func(d *quota.Decision) { d.ResetAfter = max(0, d.ResetAfter-1) }),
		"remaining one too many": misreporting(step, func(d *quota.Decision) { d.Remaining++ }),
		"remaining one too few":  misreporting(step, func(d *quota.Decision) { d.Remaining-- }),
	}
}

// misreporting makes a step that stores the right state and returns a wrong decision.
func misreporting[S any](step stepFunc[S], falsify func(d *quota.Decision)) stepFunc[S] {
	return func(l Limit, now int64, s S, quantity int64, mode quota.Mode) (quota.Decision, S, error) {
		d, next, err := step(l, now, s, quantity, mode)
		if err == nil {
			falsify(&d)
		}
		return d, next, err
	}
}

// These faults are for one kind each.

var fixedFaults = map[string]stepFunc[Fixed]{
	"a refused call moves the expiry": func(
		l Limit, now int64, s Fixed, quantity int64, mode quota.Mode,
	) (quota.Decision, Fixed, error) {
		d, next, err := l.StepFixed(now, s, quantity, mode)
		if d.Limited && next == s && s.Used > 0 {
			next.End = now + l.period
		}
		return d, next, err
	},
	"the window starts again with every call": func(
		l Limit, now int64, s Fixed, quantity int64, mode quota.Mode,
	) (quota.Decision, Fixed, error) {
		d, next, err := l.StepFixed(now, s, quantity, mode)
		if next != s && next.Used > 0 {
			next.Start, next.End = now, now+l.period
		}
		return d, next, err
	},
	"the window is read by the call's own period": func(
		l Limit, now int64, s Fixed, quantity int64, mode quota.Mode,
	) (quota.Decision, Fixed, error) {
		in := s
		in.End = min(s.End, instant(s.Start)+l.period)
		d, next, err := l.StepFixed(now, in, quantity, mode)
		if next == in {
			next = s
		}
		return d, next, err
	},
	"the latest period ends the window": func(
		l Limit, now int64, s Fixed, quantity int64, mode quota.Mode,
	) (quota.Decision, Fixed, error) {
		d, next, err := l.StepFixed(now, s, quantity, mode)
		if d.Taken > 0 && next != s {
			next.End = next.Start + l.period
		}
		return d, next, err
	},
	"what is given back names a period": func(
		l Limit, now int64, s Fixed, quantity int64, mode quota.Mode,
	) (quota.Decision, Fixed, error) {
		d, next, err := l.StepFixed(now, s, quantity, mode)
		if d.Taken < 0 && next != s && next.Used > 0 {
			next.End = max(next.End, next.Start+l.period)
		}
		return d, next, err
	},
	"a limited call names a period": func(
		l Limit, now int64, s Fixed, quantity int64, mode quota.Mode,
	) (quota.Decision, Fixed, error) {
		d, next, err := l.StepFixed(now, s, quantity, mode)
		if d.Limited && next == s && s.Used > 0 && now < s.End {
			next.End = max(next.End, instant(next.Start)+l.period)
		}
		return d, next, err
	},
}

// readSliding returns the state as a call sees it at now.
func readSliding(l Limit, now int64, s Sliding) Sliding {
	w := l.readSliding(now, s.windows(), s.Until)
	if w.empty() {
		return w.state(0)
	}
	return w.state(s.Until)
}

// putOff returns a time to wait that is not in the last second before an instant.
func putOff(retry, now, until int64) int64 {
	if at := now + retry; retry > 0 && at < until && at > until-1e9 {
		return until - now
	}
	return retry
}

var slidingFaults = map[string]stepFunc[Sliding]{
	"the window before is forgotten": func(
		l Limit, now int64, s Sliding, quantity int64, mode quota.Mode,
	) (quota.Decision, Sliding, error) {
		w := readSliding(l, now, s)
		w.Previous = 0
		return l.StepSliding(now, w, quantity, mode)
	},
	"the window before counts whole": func(
		l Limit, now int64, s Sliding, quantity int64, mode quota.Mode,
	) (quota.Decision, Sliding, error) {
		w := readSliding(l, now, s)
		w.Current, w.Previous = w.Current+w.Previous, 0
		return l.StepSliding(now, w, quantity, mode)
	},
	"the weight is rounded down": func(
		l Limit, now int64, s Sliding, quantity int64, mode quota.Mode,
	) (quota.Decision, Sliding, error) {
		if w := readSliding(l, now, s); w.Previous > 0 && w.Current < l.size {
			exact := w.Previous * max(w.Start+l.period-now, 1) % l.period
			if exact != 0 {
				l.size++
			}
		}
		d, next, err := l.StepSliding(now, s, quantity, mode)
		d.Limit = l.size
		return d, next, err
	},
	"a call that takes nothing rolls the windows": func(
		l Limit, now int64, s Sliding, quantity int64, mode quota.Mode,
	) (quota.Decision, Sliding, error) {
		d, next, err := l.StepSliding(now, s, quantity, mode)
		if w := readSliding(l, now, s); next == s && !w.windows().empty() {
			next = w
		}
		return d, next, err
	},
	"gives back to the window before first": func(
		l Limit, now int64, s Sliding, quantity int64, mode quota.Mode,
	) (quota.Decision, Sliding, error) {
		if w := readSliding(l, now, s); quantity < 0 && -quantity <= w.Previous && mode != quota.Peek {
			d, _, err := l.StepSliding(now, s, quantity, mode)
			w.Previous += quantity
			w.End = l.slidingEnd(w.windows())
			return d, w, err
		}
		return l.StepSliding(now, s, quantity, mode)
	},
	"the call's own period decides": func(
		l Limit, now int64, s Sliding, quantity int64, mode quota.Mode,
	) (quota.Decision, Sliding, error) {
		in := s
		in.Until = 0
		d, next, err := l.StepSliding(now, in, quantity, mode)
		if next == in {
			next = s
		}
		return d, next, err
	},
	"another period reads counts as its own": func(
		l Limit, now int64, s Sliding, quantity int64, mode quota.Mode,
	) (quota.Decision, Sliding, error) {
		in := s
		if now >= min(s.Until, s.End) {
			in.End = min(s.End, l.slidingEnd(in.windows()))
		}
		d, next, err := l.StepSliding(now, in, quantity, mode)
		if next == in {
			next = s
		}
		return d, next, err
	},
	"the stored period decides for ever": func(
		l Limit, now int64, s Sliding, quantity int64, mode quota.Mode,
	) (quota.Decision, Sliding, error) {
		in := s
		if s.Until > 0 {
			in.Until = math.MaxInt64
		}
		d, next, err := l.StepSliding(now, in, quantity, mode)
		if next == in {
			next = s
		}
		return d, next, err
	},
	"any call that takes names the stored period": func(
		l Limit, now int64, s Sliding, quantity int64, mode quota.Mode,
	) (quota.Decision, Sliding, error) {
		d, next, err := l.StepSliding(now, s, quantity, mode)
		if d.Taken > 0 && next != s {
			next.Until = max(next.Until, now+next.windows().period())
		}
		return d, next, err
	},
	"what is given back names a period": func(
		l Limit, now int64, s Sliding, quantity int64, mode quota.Mode,
	) (quota.Decision, Sliding, error) {
		d, next, err := l.StepSliding(now, s, quantity, mode)
		if d.Taken < 0 && next != s && !next.windows().empty() {
			next.Until = max(next.Until, now+l.period)
		}
		return d, next, err
	},
	"another period puts off what the last second would admit": func(
		l Limit, now int64, s Sliding, quantity int64, mode quota.Mode,
	) (quota.Decision, Sliding, error) {
		d, next, err := l.StepSliding(now, s, quantity, mode)
		d.RetryAfter = putOff(d.RetryAfter, now, min(next.Until, next.End))
		return d, next, err
	},
	"retry by the stored period alone": func(
		l Limit, now int64, s Sliding, quantity int64, mode quota.Mode,
	) (quota.Decision, Sliding, error) {
		d, next, err := l.StepSliding(now, s, quantity, mode)
		if d.RetryAfter > 0 {
			by, _, _ := l.deciding(now, s.windows().period(), min(s.Until, s.End)).StepSliding(now, s, quantity, mode)
			d.RetryAfter = by.RetryAfter
		}
		return d, next, err
	},
}

var logFaults = map[string]stepFunc[logState]{
	"a joined entry keeps its old instant": func(
		l Limit, now int64, s logState, quantity int64, mode quota.Mode,
	) (quota.Decision, logState, error) {
		d, next, err := stepLog(l, now, s, quantity, mode)
		if n := len(next.entries); n > 0 && n == len(s.entries) && s.entries[n-1].Total < next.entries[n-1].Total {
			next.entries[n-1].At = s.entries[n-1].At
		}
		return d, next, err
	},
	"gives back the oldest first": func(
		l Limit, now int64, s logState, quantity int64, mode quota.Mode,
	) (quota.Decision, logState, error) {
		if n := len(s.entries); quantity < 0 && n > 1 && mode != quota.Peek && now < s.End {
			if r := readLog(s.limit(l), now, s); -quantity < r.used {
				d, next, err := stepLog(l, now, s, quantity, mode)
				next.Log, next.entries = Log{Base: s.Base - uint64(quantity), End: s.entries[n-1].At + l.period}, s.entries
				return d, next, err
			}
		}
		return stepLog(l, now, s, quantity, mode)
	},
	"the base stays behind": func(
		l Limit, now int64, s logState, quantity int64, mode quota.Mode,
	) (quota.Decision, logState, error) {
		d, next, err := stepLog(l, now, s, quantity, mode)
		next.Base = s.Base
		return d, next, err
	},
	"a refused call drops entries": func(
		l Limit, now int64, s logState, quantity int64, mode quota.Mode,
	) (quota.Decision, logState, error) {
		d, next, err := stepLog(l, now, s, quantity, mode)
		if r := readLog(s.limit(l), now, s); d.Limited && same(next, s) && r.first > 0 && r.used > 0 {
			next.entries, next.Base = s.entries[r.first:], r.base
		}
		return d, next, err
	},
	"an entry is in view for a period and one ns": func(
		l Limit, now int64, s logState, quantity int64, mode quota.Mode,
	) (quota.Decision, logState, error) {
		for _, e := range s.entries {
			if e.At == now-l.period {
				now--
				break
			}
		}
		return stepLog(l, now, s, quantity, mode)
	},
	"the call's own period decides": func(
		l Limit, now int64, s logState, quantity int64, mode quota.Mode,
	) (quota.Decision, logState, error) {
		in := s
		in.Until = 0
		d, next, err := stepLog(l, now, in, quantity, mode)
		if same(next, in) {
			next = s
		}
		return d, next, err
	},
	"any call that takes names the stored period": func(
		l Limit, now int64, s logState, quantity int64, mode quota.Mode,
	) (quota.Decision, logState, error) {
		d, next, err := stepLog(l, now, s, quantity, mode)
		if d.Taken > 0 && !same(next, s) {
			next.Until = max(next.Until, now+next.period())
		}
		return d, next, err
	},
	"another period puts off what the last second would admit": func(
		l Limit, now int64, s logState, quantity int64, mode quota.Mode,
	) (quota.Decision, logState, error) {
		d, next, err := stepLog(l, now, s, quantity, mode)
		d.RetryAfter = putOff(d.RetryAfter, now, min(next.Until, next.End))
		return d, next, err
	},
	"retry by the stored period alone": func(
		l Limit, now int64, s logState, quantity int64, mode quota.Mode,
	) (quota.Decision, logState, error) {
		d, next, err := stepLog(l, now, s, quantity, mode)
		if d.RetryAfter > 0 {
			by, _, _ := stepLog(l.deciding(now, s.period(), min(s.Until, s.End)), now, s, quantity, mode)
			d.RetryAfter = by.RetryAfter
		}
		return d, next, err
	},
}
