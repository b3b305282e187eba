package value

import (
	"bytes"
	"math"
	"math/big"
	"slices"
	"strings"

	"cellserver/internal/command"
	"cellserver/internal/store"
)

// Redis counts fractions in C's long double, of 80 bits on the machines that it is used on most: 64
// bits of precision, an exponent of 15. math/big rounds the same way at each step, so that the same
// digits come out.

const (
	floatPrecision = 64
	maxFloatBytes  = 5 << 10 // bytes of a word that may be one
	maxExponent    = 16384   // of a number in [0.5, 1) * 2^e
	minExponent    = -16444  // of the smallest above 0
)

// maxFloat is the largest long double.
var maxFloat = new(big.Float).SetMantExp(new(big.Float).SetPrec(floatPrecision).SetUint64(math.MaxUint64),
	maxExponent-floatPrecision)

// parseFloat reads a number as Redis does. Of a word of digits it takes a few microseconds for each
// hundred of them.
func parseFloat(word []byte) (*big.Float, bool) {
	if isInfinity(word) {
		return new(big.Float).SetPrec(floatPrecision).SetInf(word[0] == '-'), true
	}
	if len(word) >= maxFloatBytes {
		return nil, false
	}
	n := splitFloat(word)
	switch {
	case !n.ok:
		return nil, false
	case n.zero:
		return new(big.Float).SetPrec(floatPrecision), true
	case n.farOff:
		return nil, false
	case n.hex && !n.exponent:
		word = append(bytes.Clone(word), "p0"...) // which math/big insists on
	}
	f, _, err := big.ParseFloat(string(word), 0, floatPrecision, big.ToNearestEven)
	if err != nil || f.IsInf() || f.MantExp(nil) > maxExponent || isNothing(f) {
		return nil, false
	}
	return f, true
}

// isNothing says whether a number would be rounded to 0: it is no more than half of the smallest.
func isNothing(f *big.Float) bool {
	e := f.MantExp(nil)
	return e < minExponent-1 || e == minExponent-1 && f.MinPrec() == 1
}

// isInfinity says whether a word is strtold's for it.
func isInfinity(word []byte) bool {
	if len(word) > 0 && (word[0] == '+' || word[0] == '-') {
		word = word[1:]
	}
	return command.FoldEqual(word, "INF") || command.FoldEqual(word, "INFINITY")
}

// floatParts is what a word says that strtold may take; NaN, which it takes, is refused.
type floatParts struct {
	ok       bool
	hex      bool
	zero     bool // all of its digits are
	exponent bool // it has one
	farOff   bool // and that is beyond what the digits of any word make good
}

// splitFloat looks at each byte once.
func splitFloat(word []byte) (n floatParts) {
	if len(word) > 0 && (word[0] == '+' || word[0] == '-') {
		word = word[1:]
	}
	digits, mark := decimals, byte('e')
	if n.hex = len(word) > 1 && word[0] == '0' && word[1]|' ' == 'x'; n.hex {
		word, digits, mark = word[2:], hexadecimals, 'p'
	}
	whole := span(word, digits)
	rest, fraction := word[whole:], 0
	if len(rest) > 0 && rest[0] == '.' {
		fraction = span(rest[1:], digits)
		rest = rest[1+fraction:]
	}
	n.ok = whole+fraction > 0
	n.zero = len(bytes.Trim(word[:len(word)-len(rest)], "0.")) == 0
	if len(rest) == 0 {
		return n
	}
	n.exponent = rest[0]|' ' == mark
	if rest = rest[1:]; len(rest) > 0 && (rest[0] == '+' || rest[0] == '-') {
		rest = rest[1:]
	}
	n.ok = n.ok && n.exponent && len(rest) > 0 && span(rest, decimals) == len(rest)
	n.farOff = len(bytes.TrimLeft(rest, "0")) > longestExponent
	return n
}

// longestExponent is how many digits an exponent may have: with one more a number is 0 or infinite,
// even if a word is full of digits.
const longestExponent = 6

const decimals, hexadecimals = "0123456789", "0123456789abcdefABCDEF"

// span is how many bytes a word begins with that are among some.
func span(word []byte, among string) int {
	n := 0
	for n < len(word) && strings.IndexByte(among, word[n]) >= 0 {
		n++
	}
	return n
}

// add is the sum of two floats, which may be infinite; nil if it is no number.
func add(a, b *big.Float) *big.Float {
	if a.IsInf() && b.IsInf() && a.Signbit() != b.Signbit() {
		return nil
	}
	sum := new(big.Float).SetPrec(floatPrecision).Add(a, b)
	if !sum.IsInf() && sum.MantExp(nil) > maxExponent {
		sum.SetInf(sum.Signbit())
	}
	return sum
}

// floatText is a float for people: 17 places, without the zeros at their end. What has none but
// zeros there is not written out: of the smallest numbers that took milliseconds.
func floatText(f *big.Float) []byte {
	const tiny = -60 // a number below 2^-60 is nearer to 0 than to 1e-17
	switch {
	case f.IsInf():
		return []byte(map[bool]string{false: "inf", true: "-inf"}[f.Signbit()])
	case f.MantExp(nil) < tiny:
		return []byte("0")
	}
	text := f.Append(nil, 'f', 17)
	text = bytes.TrimRight(bytes.TrimRight(text, "0"), ".")
	if len(text) == 0 || string(text) == "-" || string(text) == "-0" {
		return []byte("0")
	}
	return text
}

var incrByFloat = command.Command{
	Name: "incrbyfloat", Effort: &command.Effort{PerByte: floatWork, Creates: floatBytes},
	Group: "string", Since: "2.6.0", Complexity: "O(1)",
	Flags: command.Write | command.DenyOOM | command.Fast, Cost: command.Constant,
	Traits: command.ValueSized, Summary: "Adds to a floating-point number.",
	KeyAccess: "RW ACCESS UPDATE",
	Args:      []command.Arg{command.Key("key"), command.Word("increment")},
	Reply:     "The sum, as a string: computed with 64 bits of precision, 17 places at most. A missing key counts as 0.",
	Run: func(c *command.Call) error {
		var text []byte
		key, word := c.Key(), c.Word()
		increment, isFloat := parseFloat(word)
		c.Work += floatWork * len(word)
		count := func(e store.Entry, was []byte) (_ []byte, err error) {
			value, ok := floatValue(e, was)
			if !ok || !isFloat {
				return nil, command.ErrNotAFloat
			}
			sum := add(value, increment)
			if sum == nil || sum.IsInf() {
				return nil, command.Refusal("ERR increment would produce NaN or Infinity")
			}
			text = floatText(sum)
			return text, nil
		}
		err := editFloat(c, key, floatStep{hasLongText(increment), count, put})
		if err != nil {
			return err
		}
		c.Out.Bulk(text)
		return nil
	},
}

// floatBytes is how many bytes of text a call makes at most that adds to a float: a word such as
// 1e4900 has many digits.
func floatBytes(words [][]byte, _ int) int {
	for _, word := range words[2:] {
		if len(word) > 0 && bytes.IndexByte([]byte("+-.0123456789"), word[0]) >= 0 && bytes.ContainsAny(word, "eEpP") {
			return maxFloatBytes
		}
	}
	return 0
}

// floatWork is how many bytes moved a byte of a float's text is worth: to read it, or to write it,
// takes 20 ns or so.
const floatWork = 32

// maxShortFloat is the length of a text that is read and written while its key is locked: it takes a
// microsecond.
const maxShortFloat = 64 // bytes

// floatStep is what becomes of a float: what a key holds is counted to another text, nil for none,
// which is put there.
type floatStep struct {
	long  bool // the numbers that it counts with have long texts
	count func(e store.Entry, was []byte) (text []byte, err error)
	put   func(text []byte, e store.Entry) store.Change
}

// editFloat is editValue for floats. To read and write one of thousands of digits takes a tenth of
// a millisecond: that is done while its key is not locked, and kept if the key still holds what it
// was counted from. If it changes again and again, the key is locked.
func editFloat(c *command.Call, key []byte, step floatStep) error {
	const patience = 4
	var seen, text []byte
	var before store.Entry
	var failed error
	fresh := false // text was counted from what was seen, and nothing was counted since
	for tries := 0; ; tries++ {
		later := false
		err := editValue(c, key, func(e store.Entry, was []byte) (store.Change, error) {
			later = false
			switch long := (step.long || len(was) > maxShortFloat) && len(was) < maxFloatBytes; {
			case fresh && e.Kind == before.Kind && bytes.Equal(was, seen):
			case long && tries < patience && !c.InTransaction:
				before, seen, later = e, bytes.Clone(was), true
				return store.Change{}, nil
			default:
				text, failed = step.count(e, was)
				fresh = false
			}
			c.Work += floatWork * (len(was) + len(text))
			if failed != nil || text == nil {
				return store.Change{}, failed
			}
			return step.put(text, e), nil
		})
		if !later {
			return err
		}
		text, failed = step.count(before, seen)
		fresh = true
	}
}

// hasLongText says whether a float, of those that are given, has one.
func hasLongText(floats ...*big.Float) bool {
	return slices.ContainsFunc(floats, func(f *big.Float) bool { return f != nil && f.MantExp(nil) > 3*maxShortFloat })
}

// floatValue is the number that a key holds, 0 if there is no such key.
func floatValue(e store.Entry, value []byte) (*big.Float, bool) {
	if e.Kind == store.None {
		return new(big.Float).SetPrec(floatPrecision), true
	}
	return parseFloat(value)
}
