package value

import (
	"math/big"

	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

var incrEX = command.Command{
	Name: "increx", Effort: &command.Effort{PerByte: floatWork, Creates: floatBytes},
	Group: "string", Category: "string ratelimit", Since: "8.8.0", Complexity: "O(1)",
	Flags: command.Write | command.DenyOOM | command.Fast, Cost: command.Constant,
	Traits: command.ValueSized, Summary: "Adds to a number within bounds, and sets its expiry.",
	KeyAccess: "RW ACCESS UPDATE",
	Events: command.Events{Removal: command.ExpiredEvent, ChangeOf: func(c *command.Call) string {
		if c.HasOption("BYFLOAT") {
			return "incrbyfloat " + expiryEvent(c)
		}
		return "incrby " + expiryEvent(c)
	}},
	Args: []command.Arg{command.Key("key"), command.Word("float").After("BYFLOAT"),
		command.Word("integer").After("BYINT"),
		command.Word("lower-bound").After("LBOUND"),
		command.Word("upper-bound").After("UBOUND"), command.Flag("SATURATE"), command.Word("seconds").After("EX"),
		command.Word("milliseconds").After("PX"),
		command.Word("unix-time-seconds").After("EXAT"), command.Word("unix-time-milliseconds").After("PXAT"),
		command.Flag("PERSIST"), command.Flag("ENX")},
	Reply: `Two numbers: the value, and what was added to it. If the sum would be out of bounds, nothing changes and
0 was added; with SATURATE, the value becomes that bound. A limiter: INCREX key UBOUND 100 EX 60 ENX, limited if 0 was added.`,
	Run: func(c *command.Call) error {
		key := c.Key()
		byFloat, byInt, lower, upper := c.Word(), c.Word(), c.Word(), c.Word()
		o := increxOptions{saturate: c.Flag()}
		life := lifetime{c.Word(), c.Word(), c.Word(), c.Word()}
		o.persist, o.enx = c.Flag(), c.Flag()
		times := life.count()
		switch {
		case byFloat != nil && byInt != nil, times > 1, o.persist && (times > 0 || o.enx):
			return command.ErrSyntax
		case o.enx && times == 0:
			return command.Refusal("ERR ENX flag requires an expiration")
		}
		o.timed = times > 0
		var counter counter = new(intCounter)
		increment := byInt
		if byFloat != nil {
			counter, increment = new(floatCounter), byFloat
			c.Work += floatWork * (len(increment) + len(lower) + len(upper))
		}
		if err := counter.prepare(increment, lower, upper); err != nil {
			return err
		}
		var err error
		if o.expires, err = instant(c, life); err != nil {
			return err
		}
		step := floatStep{long: counter.isLong(), put: o.put, count: func(e store.Entry, old []byte) ([]byte, error) {
			done, err := counter.count(e, old, o.saturate)
			if err != nil || !done {
				return nil, err
			}
			return counter.text(), nil
		}}
		if err := editFloat(c, key, step); err != nil {
			return err
		}
		counter.answer(c)
		return nil
	},
}

// increxOptions are the options of INCREX, except the increment and the bounds.
type increxOptions struct {
	saturate, persist, enx bool
	timed                  bool // an option sets the expiry
	expires                int64
}

// put returns the change that writes a sum.
func (o increxOptions) put(text []byte, e store.Entry) store.Change {
	change := put(text, e)
	switch {
	case o.persist:
		change.Expires = store.Never
	case o.timed && !(o.enx && change.Expires != store.Never):
		change.Expires = o.expires
	}
	return change
}

// counter adds to a number, which is an integer or a float.
type counter interface {
	// prepare reads the increment and the bounds, which are nil if they are not given.
	prepare(increment, lower, upper []byte) error
	// count adds the increment to the value of a key. It returns false if the sum would be out of
	// bounds.
	count(e store.Entry, old []byte, saturate bool) (done bool, err error)
	text() []byte // of the sum
	isLong() bool // the increment or a bound has a long text
	answer(c *command.Call)
}

const errBounds command.Refusal = "ERR LBOUND can't be greater than UBOUND"

// intCounter counts in integers of 64 bits, whose range is the default of the bounds.
type intCounter struct{ increment, lower, upper, value, applied int64 }

func (n *intCounter) prepare(increment, lower, upper []byte) error {
	n.increment, n.lower, n.upper = 1, command.MinInt, command.MaxInt
	err := readNumbers(resp.ParseInt, "an integer or out of range",
		numberWord[int64]{"Increment", increment, &n.increment},
		numberWord[int64]{"LBOUND", lower, &n.lower}, numberWord[int64]{"UBOUND", upper, &n.upper})
	if err == nil && n.lower > n.upper {
		err = errBounds
	}
	return err
}

// numberWord is a word of a call, nil if it is not given, and where its number is stored.
type numberWord[T any] struct {
	name string
	word []byte
	to   *T
}

// readNumbers reads the numbers that are given. It returns an error for the first word that is none.
func readNumbers[T any](parse func(word []byte) (T, bool), kind string, numbers ...numberWord[T]) error {
	for _, n := range numbers {
		if n.word == nil {
			continue
		}
		var ok bool
		if *n.to, ok = parse(n.word); !ok {
			return command.Refusal("ERR " + n.name + " is not " + kind)
		}
	}
	return nil
}

func (n *intCounter) count(e store.Entry, old []byte, saturate bool) (bool, error) {
	var before int64
	if e.Kind != limit.None {
		var ok bool
		if before, ok = resp.ParseInt(old); !ok {
			return false, command.ErrNotAnInteger
		}
	}
	n.value, n.applied = before, 0
	next := before + n.increment
	wrapped := (next < before) != (n.increment < 0) // the sum does not fit into 64 bits
	above, below := next > n.upper, next < n.lower
	if wrapped {
		above, below = n.increment > 0, n.increment < 0
	}
	switch {
	case (above || below) && !saturate:
		return false, nil
	case above:
		next = n.upper
	case below:
		next = n.lower
	}
	n.value, n.applied = next, next-before
	if (next >= before) != (n.applied >= 0) {
		return false, command.Refusal("ERR applied increment would overflow")
	}
	return true, nil
}

func (n *intCounter) text() []byte { return appendInt(n.value) }

func (n *intCounter) isLong() bool { return false }

func (n *intCounter) answer(c *command.Call) { c.Out.Ints(n.value, n.applied) }

// floatCounter counts in long doubles (see float.go).
type floatCounter struct {
	increment, lower, upper, value, applied *big.Float

	long  bool
	shown []byte // the text of value, nil if it was not made yet
}

func (n *floatCounter) prepare(increment, lower, upper []byte) error {
	n.lower, n.upper = new(big.Float).Neg(maxFloat), maxFloat
	err := readNumbers(parseFloat, "a valid float", numberWord[*big.Float]{"Increment", increment, &n.increment},
		numberWord[*big.Float]{"LBOUND", lower, &n.lower}, numberWord[*big.Float]{"UBOUND", upper, &n.upper})
	if err == nil && n.lower.Cmp(n.upper) > 0 {
		err = errBounds
	}
	n.long = err == nil && (hasLongText(n.increment) || lower != nil && hasLongText(n.lower) || upper != nil &&
		hasLongText(n.upper))
	return err
}

func (n *floatCounter) count(e store.Entry, old []byte, saturate bool) (bool, error) {
	n.shown = nil
	before, ok := floatValue(e, old)
	if !ok {
		return false, command.ErrNotAFloat
	}
	n.value, n.applied = before, new(big.Float)
	next := add(before, n.increment)
	if next == nil {
		return false, command.Refusal("ERR increment would produce NaN or Infinity")
	}
	above, below := next.Cmp(n.upper) > 0, next.Cmp(n.lower) < 0
	switch {
	case (above || below) && !saturate:
		return false, nil
	case above:
		next = n.upper
	case below:
		next = n.lower
	}
	applied := add(next, new(big.Float).Neg(before))
	if applied == nil || applied.IsInf() {
		return false, command.Refusal("ERR applied increment would be Infinity")
	}
	n.value, n.applied = next, applied
	return true, nil
}

func (n *floatCounter) text() []byte {
	n.shown = floatText(n.value)
	return n.shown
}

func (n *floatCounter) isLong() bool { return n.long }

func (n *floatCounter) answer(c *command.Call) {
	value := n.shown
	if value == nil {
		value = floatText(n.value)
	}
	applied := floatText(n.applied)
	c.Work += floatWork * len(applied)
	c.Out.Array(2)
	c.Out.DoubleText(value)
	c.Out.DoubleText(applied)
}
