package value

import (
	"bytes"
	"math"
	"math/big"
	"slices"
	"strings"

	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/store"
)

// Redis computes floats in C's long double. On most machines it has 80 bits: 64 of precision, 15 of the
// exponent. math/big rounds in the same way at each step, so the results have the same digits.
const (
	floatPrecision = 64
	maxFloatBytes  = 5 << 10 // length of a word that may be a float
	maxExponent    = 16384   // of a number in [0.5, 1) * 2^e
	minExponent    = -16444  // of the smallest above 0
)

// maxFloat is the largest long double.
var maxFloat = new(big.Float).SetMantExp(new(big.Float).SetPrec(floatPrecision).SetUint64(math.MaxUint64),
	maxExponent-floatPrecision)

// parseFloat reads a float in Redis's notation: strtold's without NaN. It takes a few
// microseconds for each hundred digits.
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
	case n.outOfRange:
		return nil, false
	case n.hex && !n.exponent:
		word = append(bytes.Clone(word), "p0"...) // which math/big requires
	}
	f, _, err := big.ParseFloat(string(word), 0, floatPrecision, big.ToNearestEven)
	if err != nil || f.IsInf() || f.MantExp(nil) > maxExponent || roundsToZero(f) {
		return nil, false
	}
	return f, true
}

// roundsToZero reports whether a number is rounded to 0: it is at most half of the smallest one above 0.
func roundsToZero(f *big.Float) bool {
	e := f.MantExp(nil)
	return e < minExponent-1 || e == minExponent-1 && f.MinPrec() == 1
}

// isInfinity reports whether strtold reads a word as infinity.
func isInfinity(word []byte) bool {
	if len(word) > 0 && (word[0] == '+' || word[0] == '-') {
		word = word[1:]
	}
	return command.FoldEqual(word, "INF") || command.FoldEqual(word, "INFINITY")
}

// floatParts describes a word that may be a float.
type floatParts struct {
	ok         bool // it is a float
	hex        bool
	zero       bool // all digits are 0
	exponent   bool // it has an exponent
	outOfRange bool // the exponent is so large that no digits bring the number back into range
}

// splitFloat finds the parts of a word. It reads each byte once.
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
	n.outOfRange = len(bytes.TrimLeft(rest, "0")) > longestExponent
	return n
}

// longestExponent bounds the digits of an exponent. With one more, a number is 0 or infinite however many
// digits the word has.
const longestExponent = 6

const decimals, hexadecimals = "0123456789", "0123456789abcdefABCDEF"

// span returns how many bytes at the beginning of a word are in set.
func span(word []byte, set string) int {
	n := 0
	for n < len(word) && strings.IndexByte(set, word[n]) >= 0 {
		n++
	}
	return n
}

// add returns the sum of two floats, which may be infinite; nil if the sum is not a number.
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

// floatText returns the text of a float: up to 17 decimal places, without zeros at the end. A number with
// nothing but zeros there is "0" without being formatted, which takes milliseconds for the smallest
// numbers.
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
		count := func(e store.Entry, old []byte) (_ []byte, err error) {
			value, ok := floatValue(e, old)
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

// floatBytes is the Effort.Creates of commands that add to a float: a short word such as 1e4900 can
// create many digits.
func floatBytes(words [][]byte, _ int) int {
	for _, word := range words[2:] {
		if len(word) > 0 && bytes.IndexByte([]byte("+-.0123456789"), word[0]) >= 0 && bytes.ContainsAny(word, "eEpP") {
			return maxFloatBytes
		}
	}
	return 0
}

// floatWork is the work (see command.Call) for each byte of a float's text: to parse or to format it
// takes about 20 ns.
const floatWork = 32

// maxShortFloat is the length of a text that is parsed and formatted while its key is locked, which takes
// a microsecond.
const maxShortFloat = 64 // bytes

// floatStep is an addition to a float.
type floatStep struct {
	long  bool                                                     // the numbers that are added have long texts
	count func(e store.Entry, old []byte) (text []byte, err error) // the text of the sum, nil for no change
	put   func(text []byte, e store.Entry) store.Change            // the change that writes the text
}

// editFloat is editValue for floats. To parse and format one with thousands of digits takes a tenth
// of a millisecond. So the result is computed while the key is not locked, and stored if the key
// still has the value that it was computed from. If the key changes several times meanwhile, the
// result is computed with the key locked.
func editFloat(c *command.Call, key []byte, step floatStep) error {
	const maxTries = 4
	var seen, text []byte
	var before store.Entry
	var failed error
	fresh := false // text and failed are the result of count for seen
	for tries := 0; ; tries++ {
		later := false
		err := editValue(c, key, func(e store.Entry, old []byte) (store.Change, error) {
			later = false
			switch long := (step.long || len(old) > maxShortFloat) && len(old) < maxFloatBytes; {
			case fresh && e.Kind == before.Kind && bytes.Equal(old, seen):
			case long && tries < maxTries && !c.InTransaction && !c.OneStep:
				before, seen, later = e, bytes.Clone(old), true
				return store.Change{}, nil
			default:
				text, failed = step.count(e, old)
				fresh = false
			}
			c.Work += floatWork * (len(old) + len(text))
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

// hasLongText reports whether one of several floats, which may be nil, has a long text.
func hasLongText(floats ...*big.Float) bool {
	return slices.ContainsFunc(floats, func(f *big.Float) bool { return f != nil && f.MantExp(nil) > 3*maxShortFloat })
}

// floatValue returns the number at a key, 0 if there is no such key.
func floatValue(e store.Entry, value []byte) (*big.Float, bool) {
	if e.Kind == limit.None {
		return new(big.Float).SetPrec(floatPrecision), true
	}
	return parseFloat(value)
}
