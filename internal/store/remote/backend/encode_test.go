package backend

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

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

// The arguments of all commands share memory, which may move while they are collected.
func TestArgumentsOfManyCommands(t *testing.T) {
	for _, native := range []bool{true, false} {
		c := &connection{native: native}
		for range 2 {
			requests := writes(300)
			c.pipeline.begin()
			for i, r := range requests {
				s := c.encode(r)
				assert.Equal(t, sent{main: i, take: -1, look: -1, give: -1, script: !native}, s)
			}
			for i, command := range c.pipeline.commands {
				want := []any{"set", requests[i].Parts[0].Key, requests[i].Parts[0].Bytes, "ifeq",
					requests[i].Parts[0].Known, "get", "pxat", int64(1_700_000_001_000)}
				if !native {
					want = []any{"evalsha", compareAndSetOneDigest, 1, requests[i].Parts[0].Key, requests[i].Parts[0].Bytes,
						int64(1_700_000_001_000), requests[i].Parts[0].Known}
				}
				assert.Equal(t, want, command.Args())
			}
			c.pipeline.end()
			assert.Empty(t, c.pipeline.commands)
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
		parts := writes(1)[0].Parts
		assert.Equal(t, compareAndSetOneDigest, appendScript(nil, parts)[1])
		change(&parts[0])
		assert.Equal(t, compareAndSetDigest, appendScript(nil, parts)[1], name)
	}
	absent := writes(1)[0].Parts
	absent[0].Known = nil
	assert.Len(t, appendScript(nil, absent), 6, "nothing is known")
	absent[0].Known = []byte{}
	assert.Len(t, appendScript(nil, absent), 7, "an empty value is known")
	assert.Equal(t, compareAndSetDigest, appendScript(nil, append(absent, absent...))[1], "two keys")
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
				c.pipeline.end()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/command")
		})
	}
}
