package commands

import (
	"bytes"
	"math"
	"math/big"
	"regexp"

	"cellserver/internal/store"
)

// Redis counts fractions in C's long double, of 80 bits on the machines that it is used on most: 64 bits of precision, an exponent of
// 15. math/big rounds the same way at each step, so that the same digits come out.

const (
	floatPrecision = 64
	longestFloat   = 5 << 10 // bytes of a word that may be one
	maxExponent    = 16384   // of a number in [0.5, 1) * 2^e
	minExponent    = -16444  // of the smallest above 0
)

// maxFloat is the largest long double.
var maxFloat = new(big.Float).SetMantExp(new(big.Float).SetPrec(floatPrecision).SetUint64(math.MaxUint64), maxExponent-floatPrecision)

// floatWord is what strtold takes, but for NaN, which is refused.
var floatWord = regexp.MustCompile(`^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)([pP][+-]?\d+)?)$`)

var infinity = regexp.MustCompile(`^(?i)[+-]?inf(inity)?$`)

// parseFloat reads a number as Redis does.
func parseFloat(word []byte) (*big.Float, bool) {
	if infinity.Match(word) {
		return new(big.Float).SetPrec(floatPrecision).SetInf(word[0] == '-'), true
	}
	if len(word) >= longestFloat || !floatWord.Match(word) {
		return nil, false
	}
	if len(word) > 2 && bytes.ContainsAny(word, "xX") && !bytes.ContainsAny(word, "pP") {
		word = append(bytes.Clone(word), "p0"...) // which math/big insists on
	}
	f, _, err := big.ParseFloat(string(word), 0, floatPrecision, big.ToNearestEven)
	if err != nil && f == nil {
		return nil, false
	}
	if f.IsInf() || f.MantExp(nil) > maxExponent || f.MantExp(nil) < minExponent {
		return nil, false
	}
	return f, true
}

// plus is the sum of two floats, which may be infinite; nil if it is no number.
func plus(a, b *big.Float) *big.Float {
	if a.IsInf() && b.IsInf() && a.Signbit() != b.Signbit() {
		return nil
	}
	sum := new(big.Float).SetPrec(floatPrecision).Add(a, b)
	if !sum.IsInf() && sum.MantExp(nil) > maxExponent {
		sum.SetInf(sum.Signbit())
	}
	return sum
}

// floatText is a float for people: 17 places, without the zeros at their end.
func floatText(f *big.Float) []byte {
	text := f.Append(nil, 'f', 17)
	if f.IsInf() {
		return []byte(map[bool]string{false: "inf", true: "-inf"}[f.Signbit()])
	}
	text = bytes.TrimRight(bytes.TrimRight(text, "0"), ".")
	if len(text) == 0 || string(text) == "-" || string(text) == "-0" {
		return []byte("0")
	}
	return text
}

var incrByFloat = Command{
	Name: "incrbyfloat", Group: "string", Since: "2.6.0", Complexity: "O(1)", Flags: Write | DenyOOM | Fast,
	Summary: "Adds to a number that may have a fraction.", KeyAccess: "RW ACCESS UPDATE",
	Args:  []Arg{Key("key"), Word("increment")},
	Reply: "The sum, as a string: computed with 64 bits of precision, 17 places at most. A key that is not there counts as 0.",
	Run: func(c *Call) error {
		var text []byte
		key, word := c.Key(), c.Word()
		err := c.editValue(key, func(e store.Entry, was []byte) (store.Change, error) {
			value, ok := floatValue(e, was)
			if !ok {
				return store.Change{}, errNotAFloat
			}
			increment, ok := parseFloat(word)
			if !ok {
				return store.Change{}, errNotAFloat
			}
			sum := plus(value, increment)
			if sum == nil || sum.IsInf() {
				return store.Change{}, refusal("ERR increment would produce NaN or Infinity")
			}
			text = floatText(sum)
			return put(text, e), nil
		})
		if err != nil {
			return err
		}
		c.Out.Bulk(text)
		return nil
	},
}

// floatValue is the number that a key holds, 0 if there is no such key.
func floatValue(e store.Entry, value []byte) (*big.Float, bool) {
	if e.Kind == store.None {
		return new(big.Float).SetPrec(floatPrecision), true
	}
	return parseFloat(value)
}
