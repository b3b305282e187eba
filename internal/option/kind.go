package option

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"cellserver/internal/quota"
)

// Kind defines the values that an option may have, and holds its current value.
type Kind interface {
	// Set parses and sets a value. Its error says which values are valid.
	Set(text string) error
	// Check returns nil if Set accepts a value, else the error of Redis's CONFIG SET.
	Check(text string) error
	// String formats the value for people, such as 64mb. Set accepts it.
	String() string
	// Show formats the value as CONFIG GET does, such as 67108864. Set accepts it.
	Show() string
	// Type returns a word for the values in --help, such as size, and Range describes them.
	Type() string
	Range() string
}

// Number returns the Kind of an integer from low to high. The value is in *to.
func Number(to *int, low, high int) Kind { return number{to, low, high} }

type number struct {
	to        *int
	low, high int
}

func (n number) Set(text string) error {
	v, err := strconv.Atoi(text)
	if err != nil || v < n.low || v > n.high {
		return fmt.Errorf("it must be a number from %d to %d", n.low, n.high)
	}
	*n.to = v
	return nil
}

func (n number) Check(text string) error {
	v, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return errors.New("argument couldn't be parsed into an integer")
	case err != nil || v < int64(n.low) || v > int64(n.high):
		return fmt.Errorf("argument must be between %d and %d inclusive", n.low, n.high)
	}
	return nil
}

func (n number) String() string { return strconv.Itoa(*n.to) }
func (n number) Show() string   { return n.String() }
func (n number) Type() string   { return "number" }
func (n number) Range() string  { return fmt.Sprintf("%d to %d", n.low, n.high) }

// Time returns the Kind of a time from low to high, in a unit that divides a second. It may also be written with
// another unit, such as 2s or 12h (quota.ParsePeriod), and is rounded up then. The value is in *to.
func Time(to *int, unit time.Duration, low, high int) Kind {
	return span{number{to, low, high}, unit}
}

type span struct {
	number
	unit time.Duration
}

// timeUnits are the units of a time, for people.
const timeUnits = "ms, s, m, h or d"

// plain returns the number of units in a text with a unit; other texts are returned as they are.
func (s span) plain(text string) string {
	if p, ok := quota.ParsePeriod([]byte(text)); ok {
		return strconv.FormatInt(p.In(s.unit), 10)
	}
	return text
}

func (s span) Set(text string) error {
	if s.number.Set(s.plain(text)) != nil {
		return fmt.Errorf("it must be a number of %s from %d to %d, or have a unit: %s", s.name(), s.low, s.high, timeUnits)
	}
	return nil
}

func (s span) Check(text string) error { return s.number.Check(s.plain(text)) }
func (s span) Type() string            { return "time" }

func (s span) name() string {
	if s.unit == time.Second {
		return "seconds"
	}
	return "milliseconds"
}

// Size returns the Kind of a number of bytes from low to high, written as in redis.conf: 1k is 1000
// bytes, 1kb is 1024. The value is in *to.
func Size(to *int, low, high int) Kind { return size{to, low, high} }

type size struct {
	to        *int
	low, high int
}

var units = []struct {
	suffix string
	bytes  int64
}{{"gb", 1 << 30}, {"mb", 1 << 20}, {"kb", 1 << 10}, {"g", 1e9}, {"m", 1e6}, {"k", 1e3}, {"b", 1}, {"", 1}}

// ParseSize parses a number of bytes, such as 65536, 512kb, 64mb or 1gb. ok is false if it is
// invalid, or 2^62 or more.
func ParseSize(text string) (bytes int64, ok bool) {
	text = strings.ToLower(text)
	for _, u := range units {
		if digits, found := strings.CutSuffix(text, u.suffix); found {
			n, err := strconv.ParseInt(digits, 10, 64)
			ok := err == nil && n >= 0 && n < 1<<62/u.bytes && digits[0] != '+'
			return n * u.bytes, ok
		}
	}
	return 0, false
}

// FormatSize formats a number of bytes in the largest unit that divides it.
func FormatSize(bytes int) string {
	for _, u := range units[:3] {
		if n := int64(bytes); n > 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return strconv.Itoa(bytes)
}

func (s size) Set(text string) error {
	v, ok := ParseSize(text)
	if !ok || v < int64(s.low) || v > int64(s.high) {
		return fmt.Errorf("it must be a size from %s to %s, written like 65536, 512kb, 64mb or 1gb", FormatSize(s.low),
			FormatSize(s.high))
	}
	*s.to = int(v)
	return nil
}

func (s size) Check(text string) error {
	v, ok := ParseSize(text)
	switch {
	case !ok:
		return errors.New("argument must be a memory value")
	case v < int64(s.low) || v > int64(s.high):
		return fmt.Errorf("argument must be between %d and %d inclusive", s.low, s.high)
	}
	return nil
}

func (s size) String() string { return FormatSize(*s.to) }
func (s size) Show() string   { return strconv.Itoa(*s.to) }
func (s size) Type() string   { return "size" }
func (s size) Range() string  { return FormatSize(s.low) + " to " + FormatSize(s.high) }

// Choice returns the Kind of one of several words, in upper or lower case as in Redis. The value is
// in *to.
func Choice(to *string, words ...string) Kind { return choice{to, words} }

// YesNo returns the Kind of the words yes and no. The value is in *to.
func YesNo(to *string) Kind { return Choice(to, "yes", "no") }

type choice struct {
	to    *string
	words []string
}

func (c choice) Set(text string) error {
	for _, word := range c.words {
		if strings.EqualFold(word, text) {
			*c.to = word
			return nil
		}
	}
	return fmt.Errorf("it must be one of %s", strings.Join(c.words, ", "))
}

func (c choice) Check(text string) error {
	if !slices.ContainsFunc(c.words, func(word string) bool { return strings.EqualFold(word, text) }) {
		return fmt.Errorf("argument(s) must be one of the following: %s", strings.Join(c.words, ", "))
	}
	return nil
}

func (c choice) String() string { return *c.to }
func (c choice) Show() string   { return *c.to }
func (c choice) Type() string   { return strings.Join(c.words, "|") }
func (c choice) Range() string  { return strings.Join(c.words, ", ") }

// Text returns the Kind of any text. The value is in *to; word is its Type, such as path.
func Text(to *string, word string) Kind { return text{to, word} }

type text struct {
	to   *string
	word string
}

func (t text) Set(text string) error { *t.to = text; return nil }
func (t text) Check(string) error    { return nil }
func (t text) String() string        { return *t.to }
func (t text) Show() string          { return *t.to }
func (t text) Type() string          { return t.word }
func (t text) Range() string         { return "" }

// Parsed is the Kind of a value with a grammar of its own. The value is in *To.
type Parsed[T any] struct {
	To            *T
	Parse         func(text string) (T, error) // its error is CONFIG SET's
	Wrong         string                       // the error of Set; "" for Parse's
	Format        func(T) string
	Word, Allowed string // Type and Range
}

func (p Parsed[T]) Set(text string) error {
	v, err := p.Parse(text)
	switch {
	case err == nil:
		*p.To = v
	case p.Wrong != "":
		return errors.New(p.Wrong)
	}
	return err
}

func (p Parsed[T]) Check(text string) error {
	_, err := p.Parse(text)
	return err
}

func (p Parsed[T]) String() string { return p.Format(*p.To) }
func (p Parsed[T]) Show() string   { return p.String() }
func (p Parsed[T]) Type() string   { return p.Word }
func (p Parsed[T]) Range() string  { return p.Allowed }

// ParsedText is the Kind of a text that parse checks, and may change. The value is in *to; word is its Type, and
// allowed its Range.
func ParsedText(to *string, word, allowed string, parse func(text string) (string, error)) Kind {
	return Parsed[string]{To: to, Parse: parse, Format: strings.Clone, Word: word, Allowed: allowed}
}

// Inert returns a Kind for an option without effect: a setting of Redis that tools read with CONFIG GET and write with
// CONFIG SET. It keeps what it is set to.
func Inert(k Kind) Kind { return inert{k} }

type inert struct{ Kind }

func (inert) Type() string { return "inert" }

// Fixed returns the Kind of a constant. It is for settings of Redis that tools read with CONFIG
// GET, and that this server does not have.
func Fixed(value string) Kind { return fixed(value) }

type fixed string

func (f fixed) Set(text string) error { return f.Check(text) }
func (f fixed) String() string        { return string(f) }
func (f fixed) Show() string          { return string(f) }
func (f fixed) Type() string          { return "fixed" }
func (f fixed) Range() string         { return "" }

func (f fixed) Check(text string) error {
	if text != string(f) {
		return fmt.Errorf("it is always '%s' here", string(f))
	}
	return nil
}
