package load

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Key is the placeholder for the key in a call.
const Key = "{key}"

// KeySize is the default length of a key in bytes: user: and 12 digits, as in redis-benchmark.
const KeySize = 17

const (
	digits = 12
	prefix = "user:"
)

// Call appends the next call to a buffer, as RESP.
type Call func(buffer []byte) []byte

// Keys returns the number of the next call's key.
type Keys func() int

// From returns numbers that count up from first, so that every key is new.
func From(first int) Keys {
	return func() int { first++; return first - 1 }
}

// Around returns the numbers below n in turn, again and again.
func Around(n int) Keys {
	next := n - 1
	return func() int { next = (next + 1) % n; return next }
}

// Among returns random numbers below n, in the same order each time.
func Among(n int) Keys {
	random := rand.New(rand.NewPCG(1, 2))
	return func() int { return random.IntN(n) }
}

// NewCall makes calls such as "INCR {key}" with keys of 17 bytes.
func NewCall(text string, keys Keys) Call {
	t := newTemplate(text, KeySize)
	return func(buffer []byte) []byte { return t.call(buffer, keys()) }
}

// NewMixedCall makes calls with keys of every size from shortest to longest, with equally many keys
// of each size.
func NewMixedCall(text string, keys Keys, shortest, longest int) Call {
	var templates []template
	for size := shortest; size <= longest; size++ {
		templates = append(templates, newTemplate(text, size))
	}
	return func(buffer []byte) []byte {
		n := keys()
		return templates[n%len(templates)].call(buffer, n)
	}
}

// template is a formatted call with a place for the digits of the key. Formatting each call
// would be slower than a server in C.
type template struct {
	text  []byte
	at    int // where the digits begin
	width int
}

func newTemplate(call string, keySize int) template {
	width := min(digits, keySize)
	key := strings.Repeat("x", max(0, keySize-width-len(prefix))) + prefix[:min(len(prefix), keySize-width)] +
		strings.Repeat("#", width)
	words := strings.Fields(strings.ReplaceAll(call, Key, key))
	text := appendWords(nil, words)
	return template{text: text, at: max(0, bytes.Index(text, bytes.Repeat([]byte("#"), width))), width: width}
}

func (t template) call(buffer []byte, number int) []byte {
	start := len(buffer)
	buffer = append(buffer, t.text...)
	if t.at == 0 { // no key in it
		return buffer
	}
	hole := buffer[start+t.at : start+t.at+t.width]
	for i := len(hole) - 1; i >= 0; i-- {
		hole[i] = byte('0' + number%10)
		number /= 10
	}
	return buffer
}

func appendWords(out []byte, words []string) []byte {
	out = append(out, '*')
	out = strconv.AppendInt(out, int64(len(words)), 10)
	for _, word := range words {
		out = append(out, "\r\n$"...)
		out = strconv.AppendInt(out, int64(len(word)), 10)
		out = append(out, "\r\n"...)
		out = append(out, word...)
	}
	return append(out, "\r\n"...)
}
