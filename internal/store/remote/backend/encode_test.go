package backend

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/resp"
	"cellserver/internal/store/remote/combine"
)

// writes returns requests that change keys which hold a known value.
func writes(n int) (requests []*combine.Request) {
	for i := range n {
		requests = append(requests, &combine.Request{Kind: combine.Write, Parts: []combine.Part{{
			Key: "user:" + strconv.Itoa(i), Known: []byte("1700000000000000000"), Op: combine.Set,
			Bytes: []byte("1700000000000000001"), Expires: 1_700_000_001e9,
		}}})
	}
	return requests
}

// encoded returns the words of the commands of a pipeline.
func encoded(t *testing.T, p *pipeline) (commands [][]string) {
	out := resp.RepliesIn(p.out.Bytes())
	for range p.count {
		words := make([]string, out.Next().N)
		for i := range words {
			words[i] = string(out.Next().Text)
		}
		commands = append(commands, words)
	}
	require.Zero(t, out.Len())
	return commands
}

// encodedOne returns the words of a write.
func encodedOne(t *testing.T, native bool, parts ...combine.Part) []string {
	c := &connection{native: native}
	c.pipeline.begin()
	c.encode(&combine.Request{Kind: combine.Write, Parts: parts})
	require.Equal(t, 1, c.pipeline.count)
	return encoded(t, &c.pipeline)[0]
}

func TestManyCommands(t *testing.T) {
	for _, native := range []bool{true, false} {
		c := &connection{native: native}
		for range 2 {
			requests := writes(300)
			c.pipeline.begin()
			for i, r := range requests {
				s := c.encode(r)
				assert.Equal(t, sent{main: i, take: -1, look: -1, give: -1, script: !native}, s)
			}
			for i, words := range encoded(t, &c.pipeline) {
				p := &requests[i].Parts[0]
				want := []string{"set", p.Key, string(p.Bytes), "ifeq", string(p.Known), "get", "pxat", "1700000001000"}
				if !native {
					want = []string{"evalsha", compareAndSetOneDigest, "1", p.Key, string(p.Bytes), "1700000001000",
						string(p.Known)}
				}
				assert.Equal(t, want, words)
			}
		}
	}
}

// The short script does what the long one does, if it can.
func TestScriptOfOneKey(t *testing.T) {
	for name, change := range map[string]func(p *combine.Part){
		"a value without an expiry": func(p *combine.Part) { p.Expires = combine.Never },
		"the expiry stays":          func(p *combine.Part) { p.Expires = combine.KeepExpiry },
		"a version is compared":     func(p *combine.Part) { p.Compared = 8 },
		"an expiry is compared":     func(p *combine.Part) { p.ComparesExpiry = true },
		"the key is removed":        func(p *combine.Part) { p.Op = combine.Remove },
		"nothing is changed":        func(p *combine.Part) { p.Op = combine.Keep },
	} {
		part := writes(1)[0].Parts[0]
		assert.Equal(t, compareAndSetOneDigest, encodedOne(t, false, part)[1])
		change(&part)
		assert.Equal(t, compareAndSetDigest, encodedOne(t, false, part)[1], name)
	}
	absent := writes(1)[0].Parts[0]
	absent.Known = nil
	assert.Len(t, encodedOne(t, false, absent), 6, "nothing is known")
	absent.Known = []byte{}
	assert.Len(t, encodedOne(t, false, absent), 7, "an empty value is known")
	assert.Equal(t, compareAndSetDigest, encodedOne(t, false, absent, absent)[1], "two keys")
}

// The command that compares and sets, for each change that it can make.
func TestNativeCommands(t *testing.T) {
	for want, p := range map[string]combine.Part{
		"get k":                     {Op: combine.Keep, Known: []byte("1")},
		"get k ":                    {Op: combine.Remove},
		"set k 0 ifeq 1 get pxat 1": {Op: combine.Remove, Known: []byte("1")},
		"set k 2 nx get":            {Op: combine.Set, Bytes: []byte("2"), Expires: combine.Never},
		"set k 2 nx get ":           {Op: combine.Set, Bytes: []byte("2"), Expires: combine.KeepExpiry},
		"set k 2 nx get pxat 7":     {Op: combine.Set, Bytes: []byte("2"), Expires: 7e6},
		"set k 2 ifeq 1 get":        {Op: combine.Set, Bytes: []byte("2"), Known: []byte("1"), Expires: combine.Never},
		"set k 2 ifeq 1 get keepttl": {
			Op: combine.Set, Bytes: []byte("2"), Known: []byte("1"), Expires: combine.KeepExpiry},
		"set k 2 ifeq 1 get pxat 7":     {Op: combine.Set, Bytes: []byte("2"), Known: []byte("1"), Expires: 7e6},
		"set k  ifeq  get pxat 1700000": {Op: combine.Set, Bytes: []byte{}, Known: []byte{}, Expires: 1_700_000e6},
	} {
		p.Key = "k"
		assert.Equal(t, strings.TrimSuffix(want, " "), strings.Join(encodedOne(t, true, p), " "))
	}
}

// BenchmarkEncode measures what a command of a pipeline of 64 costs before it is sent.
func BenchmarkEncode(b *testing.B) {
	for name, native := range map[string]bool{"native": true, "script": false} {
		b.Run(name, func(b *testing.B) {
			c, requests := &connection{native: native}, writes(64)
			b.ReportAllocs()
			for b.Loop() {
				c.pipeline.begin()
				for _, r := range requests {
					c.encode(r)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/command")
		})
	}
}
