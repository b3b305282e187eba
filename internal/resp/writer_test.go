package resp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestWriter(t *testing.T) {
	for _, c := range []struct {
		name         string
		write        func(w *Writer)
		resp2, resp3 string // resp3 is "" if it is the same
	}{
		{"int", func(w *Writer) { w.Int(7); w.Int(-10); w.Int(math.MinInt64) }, ":7\r\n:-10\r\n:-9223372036854775808\r\n",
			""},
		{"bulk", func(w *Writer) { w.Bulk([]byte("a\r\nb")); w.Bulk(nil) }, "$4\r\na\r\nb\r\n$0\r\n\r\n", ""},
		{"bulk string", func(w *Writer) { w.BulkString("0123456789") }, "$10\r\n0123456789\r\n", ""},
		{"status", func(w *Writer) { w.Status("OK"); w.Status("a\r\nb") }, "+OK\r\n+a  b\r\n", ""},
		{"error", func(w *Writer) { w.Error("ERR no\r\n+OK\n") }, "-ERR no  +OK \r\n", ""},
		{"array", func(w *Writer) { w.Array(0); w.Array(12) }, "*0\r\n*12\r\n", ""},
		{"map", func(w *Writer) { w.Map(12) }, "*24\r\n", "%12\r\n"},
		{"set", func(w *Writer) { w.Set(3) }, "*3\r\n", "~3\r\n"},
		{"push", func(w *Writer) { w.Push(3) }, "*3\r\n", ">3\r\n"},
		{"null", func(w *Writer) { w.Null() }, "$-1\r\n", "_\r\n"},
		{"null array", func(w *Writer) { w.NullArray() }, "*-1\r\n", "_\r\n"},
		{"double", func(w *Writer) { w.Double(3.14) }, "$4\r\n3.14\r\n", ",3.14\r\n"},
		{"infinity", func(w *Writer) { w.Double(math.Inf(-1)) }, "$4\r\n-inf\r\n", ",-inf\r\n"},
		{"bool", func(w *Writer) { w.Bool(true); w.Bool(false) }, ":1\r\n:0\r\n", "#t\r\n#f\r\n"},
		{"verbatim", func(w *Writer) { w.Verbatim("txt", "a\nb") }, "$3\r\na\nb\r\n", "=7\r\ntxt:a\nb\r\n"},
		{"verbatim, odd formats", func(w *Writer) { w.Verbatim("m", ""); w.Verbatim("html", "") }, "$0\r\n\r\n$0\r\n\r\n",
			"=4\r\nm  :\r\n=4\r\nhtm:\r\n"},
		{"raw", func(w *Writer) { w.Raw([]byte("*0\r\n")) }, "*0\r\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var w Writer
			c.write(&w)
			assert.Equal(t, 2, w.Protocol())
			assert.Equal(t, c.resp2, string(w.Bytes()))
			w.Reset()
			w.SetProtocol(3)
			c.write(&w)
			assert.Equal(t, 3, w.Protocol())
			if c.resp3 == "" {
				c.resp3 = c.resp2
			}
			assert.Equal(t, c.resp3, string(w.Bytes()))
		})
	}
}

func TestRewindAndReset(t *testing.T) {
	var w Writer
	w.Status("OK")
	mark := w.Mark()
	w.Array(2)
	w.Int(1)
	w.Rewind(mark)
	w.Error("ERR no")
	assert.Equal(t, "+OK\r\n-ERR no\r\n", string(w.Bytes()))
	assert.Equal(t, 14, w.Len()) // "+OK\r\n" and "-ERR no\r\n"
	w.Reset()
	assert.Zero(t, w.Len())
	assert.NotZero(t, cap(w.buf))
	w.Raw(make([]byte, maxKept+1))
	w.Reset()
	assert.Zero(t, cap(w.buf))
}

func TestAppendDouble(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", math.Copysign(0, -1): "-0", 1: "1", -1.5: "-1.5", 0.1: "0.1", 3.141: "3.141", 1e6: "1000000",
		1e16: "10000000000000000", 1e17: "1e+17", 0.0001: "0.0001", 0.00001: "1e-05", 1.5e-300: "1.5e-300",
		math.MaxFloat64: "1.7976931348623157e+308", math.SmallestNonzeroFloat64: "5e-324",
		math.Inf(1): "inf", math.Inf(-1): "-inf",
	} {
		assert.Equal(t, want, string(appendDouble(nil, f)))
	}
	assert.Equal(t, "x,nan", string(appendDouble([]byte("x,"), math.NaN())))
	rapid.Check(t, func(t *rapid.T) {
		f := math.Float64frombits(rapid.Uint64().Draw(t, "bits"))
		back, err := strconv.ParseFloat(string(appendDouble(nil, f)), 64)
		if err != nil || back != f && !math.IsNaN(f) {
			t.Fatalf("%v reads back as %v, %v", f, back, err)
		}
	})
}

func TestWriterDoesNotAllocate(t *testing.T) {
	var w Writer
	w.SetProtocol(3)
	bulk := []byte("bulk")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		w.Reset()
		w.Map(1)
		w.Status("OK")
		w.Array(5)
		w.Int(12345)
		w.Bulk(bulk)
		w.Double(1.5)
		w.Verbatim("txt", "text")
		w.Error("ERR no")
	}))
}

// TestReadByGoRedis checks that a client library decodes every type of value, in both versions of
// RESP.
func TestReadByGoRedis(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		answer := newAnswerer(t, protocol)
		for kind := range byte(kinds) {
			answer.check(t, []byte{kind, 3, kind, 3, 'a', 'b', 'c', 1, 2, 3, 4, 5, 6, 7, 8})
		}
	}
}

// FuzzWriter checks that go-redis decodes what Writer writes, for random trees of values.
func FuzzWriter(f *testing.F) {
	for kind := range byte(kinds) {
		f.Add(kind%2 == 0, []byte{kind, 4, kind, 2, kind + 1, 'x', '\r', '\n', 0xff, kind + 2, 9, 8, 7, 6, 5, 4, 3, 2, 1})
	}
	answers := map[bool]*goRedisPeer{false: newAnswerer(f, 2), true: newAnswerer(f, 3)}
	f.Fuzz(func(t *testing.T, resp3 bool, seed []byte) { answers[resp3].check(t, seed) })
}

// goRedisPeer is a go-redis client and a server for it. The server answers the command ASK with the
// next of replies.
type goRedisPeer struct {
	protocol int
	client   *redis.Client
	replies  chan []byte
}

func newAnswerer(t testing.TB, protocol int) *goRedisPeer {
	a := &goRedisPeer{protocol: protocol, replies: make(chan []byte, 1)}
	a.client = redis.NewClient(&redis.Options{
		Protocol: protocol, DisableIdentity: true, PoolSize: 1, MaxRetries: -1, ContextTimeoutEnabled: true,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go a.serve(server)
			return client, nil
		},
	})
	t.Cleanup(func() { a.client.Close() })
	return a
}

// serve reads with this package's Reader, so that the two are tested together.
func (a *goRedisPeer) serve(conn net.Conn) {
	defer conn.Close()
	r := NewReader(DefaultLimits())
	input := make([]byte, 4096)
	for {
		n, err := conn.Read(input)
		if err != nil {
			return
		}
		r.Feed(input[:n])
		for words, _ := r.Next(); words != nil; words, _ = r.Next() {
			if _, err := conn.Write(a.reply(string(words[0]))); err != nil {
				return
			}
		}
		r.Keep()
	}
}

func (a *goRedisPeer) reply(command string) []byte {
	var w Writer
	w.SetProtocol(a.protocol)
	switch strings.ToUpper(command) {
	case "ASK":
		return <-a.replies
	case "HELLO":
		w.Map(2)
		w.BulkString("proto")
		w.Int(int64(a.protocol))
		w.BulkString("version")
		w.BulkString("7.2.0")
	default:
		w.Status("OK")
	}
	return w.Bytes()
}

// check writes the tree that seed describes, and compares it with what the client decodes.
func (a *goRedisPeer) check(t *testing.T, seed []byte) {
	tree := valueTree{seed: seed}
	tree.w.SetProtocol(a.protocol)
	want := tree.grow(0)
	a.replies <- tree.w.Bytes()
	got, err := a.client.Do(context.Background(), "ASK").Result()
	switch {
	case errors.Is(err, redis.Nil):
		got = nil
	case err != nil:
		got = refusal(err.Error())
	}
	require.Equal(t, fmt.Sprintf("%#v", want), fmt.Sprintf("%#v", plain(got)), "%q", tree.w.Bytes())
}

// refusal is an error reply in a tree of expected values.
type refusal string

// plain converts the errors in a decoded tree to the form of the expected tree.
func plain(v any) any {
	switch v := v.(type) {
	case error:
		if errors.Is(v, redis.Nil) {
			return nil
		}
		return refusal(v.Error())
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[any]any:
		for key := range v {
			v[key] = plain(v[key])
		}
	}
	return v
}

// valueTree writes the tree of values that seed describes, and computes what a client should
// decode.
type valueTree struct {
	seed []byte
	w    Writer
}

const kinds = 12

func (g *valueTree) next() byte {
	if len(g.seed) == 0 {
		return 0
	}
	b := g.seed[0]
	g.seed = g.seed[1:]
	return b
}

func (g *valueTree) text() string {
	n := min(int(g.next()), len(g.seed))
	text := string(g.seed[:n])
	g.seed = g.seed[n:]
	return text
}

func (g *valueTree) integer() (n int64) {
	for range 8 {
		n = n<<8 | int64(g.next())
	}
	return n >> (g.next() % 64)
}

// grow writes one value. Types with elements are the last kinds, so that they can be excluded below
// some depth.
func (g *valueTree) grow(depth int) any {
	kind := g.next() % kinds
	if depth > 5 {
		kind %= kinds - 3
	}
	resp3 := g.w.Protocol() == 3
	switch kind {
	case 0:
		n := g.integer()
		g.w.Int(n)
		return n
	case 1:
		text := g.text()
		g.w.Bulk([]byte(text))
		return text
	case 2:
		text := g.text()
		g.w.Status(text)
		return strings.NewReplacer("\r", " ", "\n", " ").Replace(text)
	case 3:
		text := "ERR " + strconv.Quote(g.text()) + "\r\n"
		g.w.Error(text)
		return refusal(text[:len(text)-2] + "  ")
	case 4:
		g.w.Null()
		return nil
	case 5:
		g.w.NullArray()
		return nil
	case 6:
		return g.double(math.Float64frombits(uint64(g.integer())), resp3)
	case 7:
		return g.bool(g.next()%2 == 0, resp3)
	case 8:
		text := g.text()
		g.w.Verbatim("txt", text)
		return text
	}
	n := int(g.next() % 12)
	if kind == 9 {
		return g.mapping(n, depth, resp3)
	}
	if kind == 10 {
		g.w.Set(n)
	} else {
		g.w.Array(n)
	}
	return g.elements(n, depth)
}

func (g *valueTree) double(f float64, resp3 bool) any {
	g.w.Double(f)
	if resp3 {
		return f
	}
	return string(appendDouble(nil, f))
}

func (g *valueTree) bool(b, resp3 bool) any {
	g.w.Bool(b)
	switch {
	case resp3:
		return b
	case b:
		return int64(1)
	}
	return int64(0)
}

func (g *valueTree) elements(n, depth int) []any {
	values := make([]any, n)
	for i := range values {
		values[i] = g.grow(depth + 1)
	}
	return values
}

// mapping writes a map whose keys are strings, which a Go map can have as keys.
func (g *valueTree) mapping(n, depth int, resp3 bool) any {
	g.w.Map(n)
	flat, pairs := []any{}, map[any]any{}
	for i := range n {
		key := strconv.Itoa(i) + g.text()
		g.w.BulkString(key)
		value := g.grow(depth + 1)
		flat, pairs[key] = append(flat, key, value), value
	}
	if resp3 {
		return pairs
	}
	return flat
}

// TestInts checks how integers are written, whatever capacity the buffer has.
func TestInts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var w, single, naive Writer
	for range 5000 {
		numbers := make([]int64, random.IntN(8))
		for i := range numbers {
			numbers[i] = []int64{-1, 0, 9, 10, 99, 1023, 1024, 1025, -2, math.MinInt64, math.MaxInt64, random.Int64N(3000),
				int64(random.Uint64()), random.Int64() >> random.IntN(64), 1_000_000_000_000 - random.Int64N(4)}[random.IntN(15)]
		}
		w.Ints(numbers...)
		naive.Array(len(numbers))
		single.Array(len(numbers))
		for _, n := range numbers {
			naive.Raw(fmt.Appendf(nil, ":%d\r\n", n))
			single.Int(n)
		}
		require.Equal(t, string(naive.Bytes()), string(w.Bytes()))
		require.Equal(t, string(naive.Bytes()), string(single.Bytes()))
		if random.IntN(4) == 0 {
			w.Reset()
			single.Reset()
			naive.Reset()
		}
	}
}

// TestRewindInPieces checks that Rewind works if the mark is in an earlier piece.
func TestRewindInPieces(t *testing.T) {
	var w Writer
	w.UsePieces()
	long := bytes.Repeat([]byte("x"), minPiece)
	marks := []int{}
	for range 4 {
		marks = append(marks, w.Mark())
		w.Raw(long)
		w.Break()
		w.Raw([]byte("tail"))
	}
	all := 4 * (len(long) + 4)
	require.Equal(t, all, w.Len())
	for _, mark := range slices.Backward(marks) {
		w.Rewind(mark)
		require.Equal(t, mark, w.Len())
		require.Equal(t, mark, w.Mark())
	}
	w.Int(7)
	require.Equal(t, ":7\r\n", string(slices.Concat(w.Pieces()...)))
	require.Zero(t, w.Len())
}
