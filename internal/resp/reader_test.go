package resp

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ping = "*1\r\n$4\r\nPING\r\n"

// small are limits that are low enough for tests.
var small = Limits{Bulk: 64, Words: 40, Inline: 100, Query: 400}

// long is the longest line allowed, without its end.
var long = strings.Repeat("1", 64<<10)

// grammar lists streams with the calls and the error that they give. Each was compared with
// redis-server 7.0.15; comments mark intended differences.
var grammar = []struct{ name, stream, want string }{
	{"a call", "*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n", `["ECHO" "hi"]`},
	{"two calls", ping + ping, `["PING"]["PING"]`},
	{"any bytes", "*2\r\n$0\r\n\r\n$5\r\n\r\n\x00*\xff\r\n", `["" "\r\n\x00*\xff"]`},
	{"a length of three digits", "*1\r\n$123\r\n" + long[:123] + "\r\n", `["` + long[:123] + `"]`},

	{"CR LF alone", "\r\n" + ping, `["PING"]`},
	{"LF alone", "\n" + ping, `["PING"]`},
	{"blanks alone", " \t\v\f\r\n" + ping, `["PING"]`},
	{"no words", "*0\r\n" + ping, `["PING"]`},
	{"fewer than no words", "*-1\r\n*-10\r\n*-9223372036854775808\r\n" + ping, `["PING"]`},
	{"many ignored", strings.Repeat("\r\n*0\r\n", 10000) + ping, `["PING"]`},

	{"LF ends no count", "*1\n$4\r\nPING\r\n", `Protocol error: invalid multibulk length`},
	{"LF ends no length", "*1\r\n$4\nPING\r\n", `Protocol error: invalid bulk length`},
	{"the byte after CR is skipped unread", "*1\rX$4\rYPINGzz" + ping, `["PING"]["PING"]`},
	{"a count waits for the byte after CR", "*x\r", ``},
	{"a length waits for the byte after CR", "*1\r\n$x\r", ``},

	{"count +1", "*+1\r\n", `Protocol error: invalid multibulk length`},
	{"count 01", "*01\r\n", `Protocol error: invalid multibulk length`},
	{"count 00", "*00\r\n", `Protocol error: invalid multibulk length`},
	{"count -0", "*-0\r\n", `Protocol error: invalid multibulk length`},
	{"count -01", "*-01\r\n", `Protocol error: invalid multibulk length`},
	{"count of nothing", "*\r\n", `Protocol error: invalid multibulk length`},
	{"count x", "*x\r\n", `Protocol error: invalid multibulk length`},
	{"count 1x", "*1x\r\n", `Protocol error: invalid multibulk length`},
	{"most words", "*1048576\r\n", ``},
	{"too many words", "*1048577\r\n", `Protocol error: invalid multibulk length`}, // Redis: beyond 2147483647
	{"count beyond int64", "*9223372036854775808\r\n", `Protocol error: invalid multibulk length`},
	{"longest count line", "*" + long[1:] + "\r\n", `Protocol error: invalid multibulk length`},
	{"longest count line, unended", "*" + long[1:], ``},
	{"too long a count line", "*" + long + "\r\n", `Protocol error: too big mbulk count string`},

	{"no dollar", "*1\r\nfoo\r\n", `Protocol error: expected '$', got 'f'`},
	{"no dollar waits for CR", "*1\r\nfoo", ``},
	{"CR for dollar", "*1\r\n\r\n", `Protocol error: expected '$', got ' '`},
	{"LF for dollar", "*1\r\n\n\r\n", `Protocol error: expected '$', got ' '`},
	{"NUL for dollar", "*1\r\n\x00\r\n", `Protocol error: expected '$', got ' '`}, // Redis waits forever
	{"a high byte for dollar", "*1\r\n\x80\r\n", "Protocol error: expected '$', got '\x80'"},
	{"length of nothing", "*1\r\n$\r\n", `Protocol error: invalid bulk length`},
	{"length -1", "*1\r\n$-1\r\n", `Protocol error: invalid bulk length`},
	{"length -5", "*1\r\n$-5\r\n", `Protocol error: invalid bulk length`},
	{"length 01", "*1\r\n$01\r\n", `Protocol error: invalid bulk length`},
	{"length +1", "*1\r\n$+1\r\n", `Protocol error: invalid bulk length`},
	{"length x", "*1\r\n$x\r\n", `Protocol error: invalid bulk length`},
	{"length 1x", "*1\r\n$1x\r\n", `Protocol error: invalid bulk length`},
	{"longest word", "*1\r\n$1048576\r\n", ``},
	{"too long a word", "*1\r\n$1048577\r\n", `Protocol error: invalid bulk length`},
	{"length of int64", "*1\r\n$9223372036854775807\r\n", `Protocol error: invalid bulk length`},
	{"length beyond int64", "*1\r\n$9223372036854775808\r\n", `Protocol error: invalid bulk length`},
	{"longest length line, unended", "*1\r\n$" + long[1:], ``},
	{"too long a length line", "*1\r\n$" + long + "\r\n", `Protocol error: too big bulk count string`},
	{"too long before dollar is missed", "*1\r\nx" + long, `Protocol error: too big bulk count string`},
	{"after calls", ping + "*x\r\n" + ping, `["PING"]Protocol error: invalid multibulk length`},

	{"inline", "PING\r\nECHO  a\tb \n", `["PING"]["ECHO" "a" "b"]`},
	{"inline, CR within", "PING\r\r\nECHO a\rb\n", `["PING"]["ECHO" "a" "b"]`},
	{"inline, NUL within", "PI\x00NG\r\n", `["PI\x00NG"]`}, // Redis waits forever
	{"inline, a blank before the asterisk", " *1\r\n", `["*1"]`},
	{"inline, an empty word", "\"\"\r\n", `[""]`},
	{"longest inline line", long + "\n", `["` + long + `"]`},
	{"longest inline line, unended", long, ``},
	{"too long an inline line", long + "1\n", `Protocol error: too big inline request`},
	{"unbalanced", "PING \"a\r\n", `Protocol error: unbalanced quotes in request`},
}

func TestReader(t *testing.T) {
	for _, c := range grammar {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, transcript(DefaultLimits(), c.stream, whole), "whole")
			assert.Equal(t, c.want, transcript(DefaultLimits(), c.stream, single), "byte by byte")
		})
	}
}

func TestReaderLimits(t *testing.T) {
	word := "$64\r\n" + strings.Repeat("x", 64) + "\r\n"
	for _, c := range []struct{ name, stream, want string }{
		{"most words", "*40\r\n", ``},
		{"too many words", "*41\r\n", errWords.Error()},
		{"too long a word", "*1\r\n$65\r\n", errBulk.Error()},
		{"too long a line", strings.Repeat("x", 101), errInline.Error()},
		{"too long an inline word", strings.Repeat("x", 65) + "\n", errBulk.Error()},
		{"too many inline words", strings.Repeat("x ", 41) + "\n", errWords.Error()},
		{"unfinished at 400 bytes", "*9\r\n" + strings.Repeat(word, 6)[:396], ErrQueryTooLong.Error()},
		{"an error beyond 400 bytes", "*9\r\n" + strings.Repeat(word, 6)[:396] + "*x\r\n", ErrQueryTooLong.Error()},
		{"many calls, no long one", strings.Repeat(ping, 100), strings.Repeat(`["PING"]`, 100)},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, transcript(small, c.stream, whole), "whole")
			assert.Equal(t, c.want, transcript(small, c.stream, single), "byte by byte")
		})
	}
}

// TestQueryBound checks that Limits.Query is the length of the longest call, however it arrives.
func TestQueryBound(t *testing.T) {
	call := "*2\r\n$4\r\nECHO\r\n$10\r\n0123456789\r\n"
	limits := DefaultLimits()
	for _, split := range []func(int) int{whole, single} {
		limits.Query = len(call)
		assert.Equal(t, `["ECHO" "0123456789"]["ECHO" "0123456789"]`, transcript(limits, call+call, split))
		limits.Query = len(call) - 1
		assert.Equal(t, ErrQueryTooLong.Error(), transcript(limits, call+call, split))
	}
	assert.Equal(t, ErrQueryTooLong.Error(), transcript(Limits{Inline: 9, Query: -1}, "P", whole))
	assert.Equal(t, errInline.Error(), transcript(Limits{Inline: -1, Query: 9}, "P\n", whole))
	huge := Limits{Bulk: math.MaxInt, Words: math.MaxInt, Inline: math.MaxInt, Query: math.MaxInt}
	assert.Equal(t, `["PING"]`, transcript(huge, ping+"*9223372036854775807\r\n$9223372036854775805\r\nx", single))
}

func TestRestrict(t *testing.T) {
	for stream, want := range map[string]string{
		"*10\r\n":                       ``,
		"*11\r\n":                       "Protocol error: unauthenticated multibulk length",
		"*1000000\r\n":                  "Protocol error: unauthenticated multibulk length",
		"*2147483647\r\n":               "Protocol error: unauthenticated multibulk length",
		"*2147483648\r\n":               "Protocol error: invalid multibulk length",
		"*-1\r\n" + ping:                `["PING"]`,
		"*1\r\n$16384\r\n":              ``,
		"*1\r\n$16385\r\n":              "Protocol error: unauthenticated bulk length",
		"*1\r\n$536870912\r\n":          "Protocol error: unauthenticated bulk length",
		"*1\r\n$536870913\r\n":          "Protocol error: invalid bulk length",
		strings.Repeat("a ", 11) + "\n": `["a" "a" "a" "a" "a" "a" "a" "a" "a" "a" "a"]`,
	} {
		r := NewReader(DefaultLimits())
		r.Restrict(true)
		assert.Equal(t, want, drain(r, next, []byte(stream)), "%.20q", stream)
	}
	r := NewReader(DefaultLimits())
	r.Restrict(true)
	r.Feed([]byte("*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n*11\r\n"))
	words, err := r.Next()
	require.NoError(t, err)
	require.Len(t, words, 2)
	r.Restrict(false) // between two calls of one batch
	_, err = r.Next()
	require.NoError(t, err)
}

func TestErrorIsFinal(t *testing.T) {
	r := NewReader(DefaultLimits())
	for _, input := range []string{"*x\r\n" + ping, ping} {
		r.Feed([]byte(input))
		words, err := r.Next()
		assert.Nil(t, words)
		assert.Equal(t, errWords, err)
		assert.Zero(t, r.Buffered())
		r.Keep()
	}
}

func TestBuffered(t *testing.T) {
	r := NewReader(DefaultLimits())
	r.Feed([]byte(ping + ping + "*1\r"))
	assert.Equal(t, 31, r.Buffered())
	r.Next()
	assert.Equal(t, 17, r.Buffered())
	r.Keep()
	r.Feed([]byte("\n$4\r\n"))
	assert.Equal(t, 22, r.Buffered())
	r.Feed([]byte("PING\r\n")) // without Keep between
	assert.Equal(t, 28, r.Buffered())
	assert.Equal(t, `["PING"]["PING"]`, drain(r, next, nil))
	assert.Zero(t, r.Buffered())
}

// TestUnreadCallsAreKept checks that a session that stops reading in the middle of a batch finds
// the rest later, in order, in linear time.
func TestUnreadCallsAreKept(t *testing.T) {
	const calls = 20000
	var stream []byte
	for i := range calls {
		stream = fmt.Appendf(stream, "*2\r\n$1\r\nN\r\n$5\r\n%05d\r\n", i)
	}
	spent := 0
	r := NewReader(DefaultLimits())
	r.work = &spent
	half := len(stream)/2 + 7
	r.Feed(slices.Clone(stream[:half]))
	for i := range calls {
		if i == 100 {
			r.Feed(slices.Clone(stream[half:]))
		}
		words, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%05d", i), string(words[1]))
		r.Keep()
	}
	assert.Zero(t, r.Buffered())
	assert.Less(t, spent, 6*len(stream))
}

// TestLinear checks that reading takes linear time. It counts the bytes searched and moved and the
// words placed, because times vary on a busy machine.
func TestLinear(t *testing.T) {
	words := strings.Repeat("$3\r\nabc\r\n", 10000)
	for name, stream := range map[string]string{
		"a bulk of 1 MiB":          "*2\r\n$3\r\nSET\r\n$1048576\r\n" + strings.Repeat("v", 1<<20) + "\r\n",
		"an inline line of 60 KiB": strings.Repeat("word ", 12<<10) + "\r\n",
		"a line without an end":    "*1\r\n$" + strings.Repeat("1", 64<<10),
		"a call of 10000 words":    "*10000\r\n" + words,
		"calls of three words": strings.Repeat("*3\r\n$3\r\nabc\r\n$3\r\nabc\r\n$100\r\n"+strings.Repeat("x", 100)+"\r\n",
			1000),
		"many calls without words": strings.Repeat("*0\r\n\r\n", 10000),
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 2, 7, 100, 1000, 1 << 30} {
				spent := 0
				r := NewReader(DefaultLimits())
				r.work = &spent
				for input := range slices.Chunk([]byte(stream), min(size, len(stream))) {
					r.Feed(input)
					for words, _ := r.Next(); words != nil; words, _ = r.Next() {
					}
					r.Keep()
				}
				assert.LessOrEqual(t, spent, 5*len(stream), "%d bytes at a time", size)
			}
		})
	}
}

// TestNoLongMove checks that the work for 16 KiB of input is bounded by the longest word. Before
// long calls were kept in parts, it was bounded by the longest call.
func TestNoLongMove(t *testing.T) {
	const read = 16 << 10
	for name, c := range map[string]struct {
		stream string
		most   int
	}{
		"a word of 1 MiB":          {"*2\r\n$3\r\nSET\r\n$1048576\r\n" + strings.Repeat("v", 1<<20) + "\r\n", 600 << 10},
		"a call of a million keys": {"*1048576\r\n" + strings.Repeat("$7\r\nkey:abc\r\n", 1<<20), 150 << 10},
		"words of 100 KiB": {"*100\r\n" + strings.Repeat("$102400\r\n"+strings.Repeat("v", 102400)+"\r\n", 100),
			250 << 10},
	} {
		spent, most := 0, 0
		r := NewReader(DefaultLimits())
		r.work = &spent
		for input := range slices.Chunk([]byte(c.stream), read) {
			before := spent
			r.Feed(input)
			for words, err := r.Next(); words != nil; words, err = r.Next() {
				require.NoError(t, err)
				r.Long()
			}
			r.Keep()
			most = max(most, spent-before)
		}
		assert.Less(t, most, c.most, name)
		assert.Zero(t, r.Buffered(), name)
	}
}

// TestLinearCounterCounts checks that the counter of TestLinear finds a planted bug: a reader that
// does not remember how far it has searched.
func TestLinearCounterCounts(t *testing.T) {
	spent := 0
	r := NewReader(DefaultLimits())
	r.work = &spent
	for range 10000 {
		r.Feed([]byte("x"))
		r.Next()
		r.Keep()
		r.scanned = 0
	}
	assert.Greater(t, spent, 1000*10000)
}

func TestNothingIsReservedForACount(t *testing.T) {
	stream := []byte("*1048576\r\n$1048576\r\n")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	readers := make([]*Reader, 100)
	for i := range readers {
		readers[i] = NewReader(DefaultLimits())
		assert.Empty(t, drain(readers[i], next, stream))
	}
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(200<<10))
	runtime.KeepAlive(readers)
}

// TestHeldMemory checks that memory grows with the bytes that have arrived, and is bounded by
// Limits.Query.
func TestHeldMemory(t *testing.T) {
	limits := DefaultLimits()
	limits.Query = 1 << 20
	stream := []byte("*1048576\r\n" + strings.Repeat("$1\r\na\r\n", 200000))
	r, most := NewReader(limits), 0
	for input := range slices.Chunk(stream, 1000) {
		drain(r, next, input)
		require.LessOrEqual(t, cap(r.own), 2*r.Buffered()+len(input))
		require.LessOrEqual(t, cap(r.words), r.Buffered()/3+8)
		most = max(most, r.Buffered())
	}
	assert.Equal(t, ErrQueryTooLong, r.err)
	assert.Less(t, most, limits.Query)
	assert.Zero(t, cap(r.own)+cap(r.words)+r.Buffered())
}

func TestIdleMemory(t *testing.T) {
	assert.LessOrEqual(t, unsafe.Sizeof(Reader{}), uintptr(384), "there is one for each of thousands of idle connections")
	for name, stream := range map[string]string{
		"many words":      "*20000\r\n" + strings.Repeat("$1\r\na\r\n", 20000),
		"a big word":      "*1\r\n$1048576\r\n" + strings.Repeat("v", 1<<20) + "\r\n",
		"a long line":     strings.Repeat("'a' ", 16000) + "\r\n",
		"a long pipeline": strings.Repeat(ping, 10000),
	} {
		for _, size := range []int{1000, 1 << 30} {
			r := NewReader(DefaultLimits())
			for input := range slices.Chunk([]byte(stream), min(size, len(stream))) {
				drain(r, next, input)
			}
			assert.LessOrEqual(t, cap(r.own)+cap(r.scratch), 2*idleBytes, name)
			assert.LessOrEqual(t, cap(r.words), idleWords, name)
			for _, word := range r.words[:cap(r.words)] {
				assert.Nil(t, word, name)
			}
			drain(r, next, []byte(stream+"*2\r\n$1\r\na\r\n")) // the same, with a part of a call after it
			assert.LessOrEqual(t, cap(r.own), alwaysKept, name)
			assert.LessOrEqual(t, cap(r.words), idleWords, name)
		}
	}
}

func TestNextDoesNotAllocate(t *testing.T) {
	pipelined := bytes.Repeat([]byte(throttleCall), 64)
	inline := []byte("CL.THROTTLE \"k:000000012345\" 15 30 60 1\r\n")
	cut := append(slices.Clone(pipelined[50:]), pipelined[:50]...)
	for name, inputs := range map[string][][]byte{
		"pipelined":     {pipelined},
		"inline":        {inline},
		"split":         {pipelined[:30], pipelined[30:1000], pipelined[1000:]},
		"byte by byte":  slices.Collect(slices.Chunk([]byte(throttleCall), 1)),
		"always a tail": {pipelined[:50], cut, cut, cut, pipelined[50:]},
	} {
		r := NewReader(DefaultLimits())
		allocs := testing.AllocsPerRun(100, func() {
			for _, input := range inputs {
				r.Feed(input)
				for words, _ := r.Next(); words != nil; words, _ = r.Next() {
				}
				r.Keep()
			}
		})
		assert.Zero(t, allocs, name)
	}
}

// FuzzReader checks that the calls do not depend on how the stream is split, that the reader does
// not write to its input and does not use it after Keep, and that its memory is bounded.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		ping + ping, throttleCall, "*2\r\n$3\r\nGET\r\n$0\r\n\r\nPING\r\n", "*0\r\n\r\n*-1\r\n" + ping, "*1\rX$4\rYPINGzz",
		"*+1\r\n", "*1\r\n$65\r\n", "*1\r\nfoo\r\n", "*1\r\n\x00\r\n", "SET 'a b' \"\\x41\\n\"\r\n", "a\"b\r\n", "*41\r\n",
		strings.Repeat("x", 101), "*" + strings.Repeat("1", 101), "*1\r\n$" + strings.Repeat("1", 101),
		strings.Repeat("x ", 41) + "\n",
		"*40\r\n" + strings.Repeat("$20\r\n01234567890123456789\r\n", 20), "PING\r", "*1\r\n$4\r\nPING\r",
	} {
		f.Add([]byte(seed), uint64(1))
		f.Add([]byte(strings.Repeat(seed, 5)), uint64(2))
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		cuts := rand.New(rand.NewPCG(seed, 0))
		random := func(n int) int { return 1 + cuts.IntN(n) }
		want := transcript(small, string(stream), whole)
		require.Equal(t, want, transcript(small, string(stream), single), "byte by byte")
		require.Equal(t, want, transcript(small, string(stream), random), "split at random")
		require.Equal(t, want, transcript(small, string(stream), func(int) int { return 1 + cuts.IntN(9) }),
			"split into small pieces")
		require.Equal(t, want, transcriptBy(gather, small, string(stream), whole), "gathered")
		require.Equal(t, want, transcriptBy(gather, small, string(stream), random), "gathered, split at random")
		for _, part := range []int{1, 7, 30, 1 + cuts.IntN(200)} {
			require.Equal(t, want, transcriptBy(inParts(part), small, string(stream), single), "in parts, byte by byte")
			require.Equal(t, want, transcriptBy(inParts(part), small, string(stream), random), "in parts, split at random")
		}
	})
}

// TestRepeat checks that Repeat gives the same calls as Next for calls that repeat one another, and
// for calls that nearly do. It also checks that the comparison finds a reader that confuses the
// two.
func TestRepeat(t *testing.T) {
	like := func(key, quantity string) string {
		return fmt.Sprintf("*4\r\n$2\r\nCL\r\n$%d\r\n%s\r\n$2\r\n60\r\n$%d\r\n%s\r\n", len(key), key, len(quantity), quantity)
	}
	for name, stream := range map[string]string{
		"other keys": like("a", "1") + like("bb", "1") + like("", "1") + like(strings.Repeat("c", 40), "1") +
			like("a", "1"),
		"another last word":     like("a", "1") + like("b", "2") + like("c", "2") + like("d", "10"),
		"other skipped bytes":   like("a", "1") + strings.Replace(like("b", "1"), "b\r\n", "bxy", 1) + like("c", "1"),
		"a key too long":        like("a", "1") + like(strings.Repeat("k", small.Bulk+1), "1"),
		"one word":              ping + ping + ping,
		"a blank line between":  like("a", "1") + "\r\n" + like("b", "1") + "*0\r\n" + like("c", "1"),
		"a length line alone":   "$3\r\nabc\r\n",
		"it ends in the middle": like("a", "1") + like("b", "1")[:20],
	} {
		want := transcript(small, stream, whole)
		require.Equal(t, want, transcriptBy(gather, small, stream, whole), name)
		require.Equal(t, want, transcriptBy(gather, small, stream, func(int) int { return 61 }), name)
		require.Equal(t, want, transcriptBy(gatherLast(), small, stream, whole), name)
		require.Equal(t, want, transcriptBy(gatherLast(), small, stream, func(int) int { return 61 }), name)
	}
	stream := like("a", "1") + like("b", "2")
	require.NotEqual(t, transcript(small, stream, whole), transcriptBy(gatherWrong, small, stream, whole))
}

// reading is a way to read a call: next, or gather, as a session that reads ahead does. last is the
// previous call.
type reading func(r *Reader, last [][]byte) ([][]byte, error)

func next(r *Reader, _ [][]byte) ([][]byte, error) { return r.Next() }

// inParts returns a reading that keeps unfinished calls in parts of so many bytes.
func inParts(part int) reading {
	return func(r *Reader, _ [][]byte) ([][]byte, error) {
		r.parts.size = part
		return r.Next()
	}
}

func gather(r *Reader, last [][]byte) ([][]byte, error) {
	if second, ok := r.Repeat(); ok {
		words := slices.Clone(last)
		words[1] = second
		return words, nil
	}
	words, err := r.Append(nil)
	if len(words) == 0 {
		return nil, err
	}
	return words, err
}

// gatherLast returns a reading in which a call also counts as a repetition if only its last word
// differs.
func gatherLast() reading {
	length := 0 // of the last word of the call that Append has read last
	return func(r *Reader, last [][]byte) ([][]byte, error) {
		if second, end, ok := r.RepeatWithLast(length); ok {
			words := slices.Clone(last)
			words[1], words[len(words)-1] = second, end
			return words, nil
		}
		words, err := r.Append(nil)
		if len(words) == 0 {
			return nil, err
		}
		if length = len(words[len(words)-1]); len(words) < 3 {
			r.previous = callShape{} // a session compares no such call
		}
		return words, err
	}
}

// gatherWrong has a planted bug: it treats any call of as many words as a repetition.
func gatherWrong(r *Reader, last [][]byte) ([][]byte, error) {
	words, err := gather(r, last)
	if len(words) > 1 && len(words) == len(last) {
		words = append(slices.Clone(words[:2]), last[2:]...)
	}
	return words, err
}

// Ways to split a stream: each returns the size of the next piece when n bytes are left.
func whole(n int) int { return n }
func single(int) int  { return 1 }

// transcript returns what a reader reads from a stream that arrives in pieces: the calls, each as
// [words], and the error if there is one. Each piece is in a buffer that is overwritten after Keep,
// as a transport's buffer is.
func transcript(limits Limits, stream string, piece func(left int) int) string {
	return transcriptBy(next, limits, stream, piece)
}

func transcriptBy(next reading, limits Limits, stream string, piece func(left int) int) string {
	r := NewReader(limits)
	var out strings.Builder
	for len(stream) > 0 {
		n := min(piece(len(stream)), len(stream))
		out.WriteString(drain(r, next, []byte(stream[:n])))
		if r.err != nil {
			break
		}
		if held := cap(r.own); held > 2*max(limits.Query, 1<<10)+alwaysKept+idleBytes && limits.Query < 1<<30 {
			panic(fmt.Sprintf("the reader keeps %d bytes", held))
		}
		stream = stream[n:]
	}
	return out.String()
}

// drain feeds one batch and reads it to its end. It panics if the reader has written to the batch,
// and then overwrites it.
func drain(r *Reader, next reading, input []byte) string {
	before := string(input)
	r.Feed(input)
	var out strings.Builder
	for words, err := next(r, nil); ; words, err = next(r, words) {
		if err != nil {
			out.WriteString(err.Error())
		}
		if words == nil {
			break
		}
		fmt.Fprintf(&out, "%q", words)
	}
	if string(input) != before {
		panic("the reader wrote to its input")
	}
	r.Keep()
	for i := range input {
		input[i] = '!'
	}
	return out.String()
}

// overwritePools overwrites the buffers that are available for reuse.
func overwritePools() {
	for i := range pools {
		if b, ok := pools[i].Get().(*[]byte); ok {
			for j := range (*b)[:cap(*b)] {
				(*b)[:cap(*b)][j] = '!'
			}
			pools[i].Put(b)
		}
	}
}

// TestReusedMemory checks that memory is not reused while a word is in it: with words of all
// lengths, split anywhere, for several readers in turn. Each reads several calls before it
// uses their words.
func TestReusedMemory(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	streams, wants, readers := make([][]byte, 4), make([]string, 4), make([]*Reader, 4)
	for i := range streams {
		readers[i] = NewReader(DefaultLimits())
		for range 60 {
			words := []string{strconv.Itoa(i)}
			for n := range random.IntN(12) {
				words = append(words, strings.Repeat(string(rune('a'+n)), random.IntN(1<<random.IntN(18))))
			}
			streams[i] = fmt.Appendf(streams[i], "*%d\r\n", len(words))
			for _, word := range words {
				streams[i] = fmt.Appendf(streams[i], "$%d\r\n%s\r\n", len(word), word)
			}
			wants[i] += fmt.Sprintf("%q", words)
		}
	}
	for turn := 0; len(strings.Join(wants, "")) > 0; turn++ {
		i := turn % len(streams)
		n := min(len(streams[i]), random.IntN(60<<10))
		said := readSome(t, readers[i], streams[i][:n], random.IntN(4))
		require.True(t, strings.HasPrefix(wants[i], said), "reader %d, turn %d", i, turn)
		streams[i], wants[i] = streams[i][n:], wants[i][len(said):]
	}
}

// readSome feeds a reader and reads at most so many calls. It overwrites the memory that is
// available for reuse before it examines them.
func readSome(t *testing.T, r *Reader, input []byte, most int) string {
	var calls strings.Builder
	var read [][][]byte
	r.Feed(input)
	for len(read) < most {
		words, err := r.Next()
		require.NoError(t, err)
		if words == nil {
			break
		}
		read = append(read, slices.Clone(words))
	}
	overwritePools()
	for _, words := range read {
		fmt.Fprintf(&calls, "%q", words)
	}
	r.Keep()
	overwritePools()
	return calls.String()
}

// TestWordsAfterAPart checks the positions of the words after a part: the part ends before the
// length line of the next word. (Once, 20000 words began six bytes too late.)
func TestWordsAfterAPart(t *testing.T) {
	var stream []byte
	words := []string{strings.Repeat("a", 66000), strings.Repeat("b", 20000), strings.Repeat("c", 60000), "d"}
	for _, word := range append([]string{"EXISTS"}, words...) {
		stream = fmt.Appendf(stream, "$%d\r\n%s\r\n", len(word), word)
	}
	stream = append([]byte("*5\r\n"), stream...)
	said := transcript(DefaultLimits(), string(stream), func(int) int { return 16 << 10 })
	require.Equal(t, fmt.Sprintf("%q", append([]string{"EXISTS"}, words...)), said)
}

// TestLong checks that the call that Long returns does not change when later calls are read, and
// that the bytes after it are read too.
func TestLong(t *testing.T) {
	const count = 30_000
	var long strings.Builder
	fmt.Fprintf(&long, "*%d\r\n", count)
	for i := range count {
		fmt.Fprintf(&long, "$5\r\n%05d\r\n", i)
	}
	for _, cut := range []int{0, 1, 7, 8000, 200_000, long.Len() - 1} {
		r := NewReader(DefaultLimits())
		for input := range slices.Chunk([]byte(long.String()[:cut]), 16<<10) {
			require.Empty(t, drain(r, next, input))
		}
		rest := []byte(long.String()[cut:] + ping + long.String()[:4000])
		r.Feed(rest)
		words, err := r.Next()
		require.NoError(t, err)
		require.Len(t, words, LongCall)
		call := r.Long()
		require.NotNil(t, call)

		words, err = r.Next()
		require.NoError(t, err)
		require.Equal(t, "PING", string(words[0]))
		require.Nil(t, r.Long())
		words, err = r.Next()
		require.NoError(t, err)
		require.Nil(t, words)
		r.Keep()
		clear(rest)
		overwritePools()
		r.Feed([]byte(strings.ReplaceAll(long.String()[4000:], "0", "x")))
		words, err = r.Next()
		require.NoError(t, err)
		require.Len(t, words, LongCall)
		r.Keep()

		all := SplitCall(call, func() {})
		require.Len(t, all, count)
		for i, word := range all {
			require.Equal(t, fmt.Sprintf("%05d", i), string(word), "cut at %d", cut)
		}
	}
}

// TestDetachedWords checks that words do not change after Detach when later calls are read.
func TestDetachedWords(t *testing.T) {
	word := strings.Repeat("long", 20_000)
	call := []byte("*3\r\n$1\r\na\r\n$80000\r\n" + word + "\r\n$80000\r\n" + word + "\r\n")
	for _, behind := range []string{"", "PING\r\n", "*2\r\n$4\r\nECHO\r\n$5\r\nhe"} {
		r := NewReader(DefaultLimits())
		input := append(slices.Clone(call), behind...)
		var words [][]byte
		for piece := range slices.Chunk(input, 16<<10) {
			input := slices.Clone(piece)
			r.Feed(input)
			got, err := r.Append(nil)
			require.NoError(t, err)
			if got != nil && words == nil {
				require.True(t, r.WordsOwned())
				words = slices.Clone(got)
				r.Detach()
			}
			r.Keep()
			for i := range input {
				input[i] = 0xdd
			}
		}
		for range 50 {
			for piece := range slices.Chunk(bytes.Repeat([]byte("*1\r\n$70000\r\n"+strings.Repeat("y", 70_000)+"\r\n"), 1),
				16<<10) {
				if behind == "" {
					r.Feed(piece)
					_, err := r.Next()
					require.NoError(t, err)
					r.Keep()
				}
			}
		}
		require.Equal(t, []string{"a", word, word}, []string{string(words[0]), string(words[1]), string(words[2])})
	}
}
