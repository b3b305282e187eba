package backend

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/match"
	"cellserver/internal/store/remote/combine"
)

func TestParseAddress(t *testing.T) {
	for _, test := range []struct {
		url  string
		want Address
	}{
		{"redis://example.org", Address{Nodes: []string{"example.org:6379"}}},
		{"REDIS://10.0.0.1:7000/0", Address{Nodes: []string{"10.0.0.1:7000"}}},
		{"redis://[::1]", Address{Nodes: []string{"[::1]:6379"}}},
		{"rediss://[::1]:7000/", Address{TLS: true, Nodes: []string{"[::1]:7000"}}},
		{"redis://limits:p%40ss%2F@db", Address{User: "limits", Password: "p@ss/", Nodes: []string{"db:6379"}}},
		{"redis://:secret@db", Address{Password: "secret", Nodes: []string{"db:6379"}}},
		{"unix:///run/redis.sock", Address{Socket: "/run/redis.sock"}},
		{"unix://:secret@/run/redis.sock", Address{Socket: "/run/redis.sock", Password: "secret"}},
		{"redis+sentinel://a,b:7,a/main", Address{Kind: Sentinel, Nodes: []string{"a:26379", "b:7"}, Master: "main"}},
		{"rediss+cluster://a,b:7", Address{Kind: Cluster, TLS: true, Nodes: []string{"a:6379", "b:7"}}},
	} {
		got, err := ParseAddress(test.url)
		require.NoError(t, err, test.url)
		assert.Equal(t, test.want, got, test.url)
		assert.NotContains(t, got.String(), "secret")
		again, err := ParseAddress(got.String())
		got.User, got.Password = "", ""
		assert.NoError(t, err)
		assert.Equal(t, got, again, "its text is a URL of the same")
	}
}

func TestParseAddressRefuses(t *testing.T) {
	for url, why := range map[string]string{
		"":                              "the forms are redis://",
		"localhost:6379":                "the forms are redis://",
		"http://secret@db":              "the forms are redis://",
		"redis://":                      "no host",
		"redis+cluster://a,,b":          "no host",
		"redis://:secret@a,b":           "redis+sentinel://host,host/master-name",
		"redis://db/3":                  "SELECT",
		"redis://:secret@db?db=3":       "has parameters",
		"redis://:secret#3@db":          "%23",
		"redis://:secret%4@db":          "write %25",
		"redis://db:0":                  "1 to 65535",
		"redis://db:secret":             "1 to 65535",
		"redis://::1":                   "in brackets",
		"redis+sentinel://a,b":          "redis+sentinel://host,host/mymaster",
		"redis+sentinel://a/b/c":        "redis+sentinel://host,host/mymaster",
		"unix://run/redis.sock":         "three slashes",
		"unix://":                       "three slashes",
		"redis+sentinel://:secret@a:1/": "redis+sentinel://host,host/mymaster",
	} {
		_, err := ParseAddress(url)
		if assert.ErrorContains(t, err, why, url) && !strings.Contains(url, "db:secret") {
			assert.NotContains(t, err.Error(), "secret", url)
		}
	}
}

func TestPrefix(t *testing.T) {
	assert.NoError(t, CheckPrefix("limits:"))
	assert.ErrorContains(t, CheckPrefix("{limits}:"), "may not contain {")
	assert.ErrorContains(t, CheckPrefix(strings.Repeat("x", 257)), "longer than 256 bytes")
	for _, text := range []string{"plain:", "*", "a?[b]", `back\slash*`, "[^x-z]", ""} {
		assert.True(t, match.Glob([]byte(EscapeGlob(text)), []byte(text), false), text)
		assert.False(t, match.Glob([]byte(EscapeGlob(text)), []byte(text+"x"), false), text)
		if text != "" {
			assert.False(t, match.Glob([]byte(EscapeGlob(text)), []byte("z"+text[1:]), false), text)
		}
	}
}

// Slots are as in the cluster specification, and as a redis-server has computed them.
func TestSlot(t *testing.T) {
	for key, slot := range map[string]int{
		"123456789": 12739, "foo": 12182, "{foo}bar": 12182, "x{foo}{bar}": 12182, "foo{}": 5542, "{}foo": 9500, "": 0,
	} {
		assert.Equal(t, slot, Slot(key), key)
	}
}

func TestInternalKeys(t *testing.T) {
	b := &Backend{config: Config{Prefix: "p:"}}
	names := map[string]bool{}
	for _, key := range []string{"p:a", "p:{a}b", "p:a}b", "p:{}a", "p:a{b", "p:\x00", "p:"} {
		turn := b.turnKey(key)
		assert.Equal(t, Slot(key), Slot(turn), "%q lies in the slot of %q", turn, key)
		assert.True(t, strings.HasPrefix(turn, "p:"))
		assert.True(t, b.IsInternal(turn))
		assert.False(t, b.IsInternal(key))
		names[turn] = true
	}
	assert.Len(t, names, 7, "each key has a turn key of its own")
	for _, key := range []string{"p:{x}\x00turn:", "p:{12}turn:", "{12}\x00turn:", "p:"} {
		assert.False(t, b.IsInternal(key), key)
	}
}

func TestClassify(t *testing.T) {
	for reply, want := range map[string]outcome{
		"MOVED 1 a:1": outcomeMoved, "ASK 1 a:1": outcomeAsk, "NOSCRIPT No matching script.": outcomeNoScript,
		"TRYAGAIN Multiple keys": outcomeLater, "READONLY You can't": outcomeLater, "LOADING Redis": outcomeLater,
		"CLUSTERDOWN": outcomeLater, "MASTERDOWN Link": outcomeLater,
		"OOM command": outcomeRefused, "NOPERM x": outcomeRefused, "MISCONF x": outcomeRefused,
		"NOREPLICAS x": outcomeRefused, "BUSY x": outcomeRefused, "WRONGTYPE x": outcomeRefused,
		"ERR MOVED": outcomeRefused, "": outcomeRefused,
	} {
		got, _ := classify(reply)
		assert.Equal(t, want, got, reply)
	}
}

func TestReadRedirection(t *testing.T) {
	for reply, want := range map[string]string{
		"MOVED 3999 127.0.0.1:6381": "127.0.0.1:6381", "ASK 3999 h:1": "h:1", "MOVED 3999 :7": "asked:7",
		"MOVED 3999 2001:db8::1:7": "[2001:db8::1]:7",
		"MOVED 3999 ?:7":           "", "MOVED 16384 h:1": "", "MOVED x h:1": "", "MOVED 1": "", "MOVED 1 h": "",
	} {
		_, address, ok := readRedirection(reply, "asked:1")
		assert.Equal(t, want != "", ok, reply)
		if ok {
			assert.Equal(t, want, address)
		}
	}
}

// A timeline: each line is a measurement, and what the clock says afterwards.
func TestClock(t *testing.T) {
	const ms = int64(time.Millisecond)
	var c clock
	for i, line := range []struct{ offset, trip, want, set int64 }{
		{1000 * ms, 8 * ms, 1000 * ms, 0},
		{1003 * ms, 2 * ms, 1003 * ms, 0},            // a shorter round trip counts
		{1009 * ms, 12 * ms, 1003 * ms, 0},           // a longer one does not
		{1016 * ms, 6 * ms, 1003 * ms, 0},            // more than 10 ms, but not more than the round trips explain
		{1020 * ms, 6 * ms, 1020 * ms, 17 * ms},      // the clock was set
		{1020*ms - 1, 6 * ms, 1020*ms - 1, 0},        // of equal round trips, the latest counts
		{9 * ms, 2 * ms, 9 * ms, 9*ms - 1020*ms + 1}, // set back
		{10 * ms, 3 * ms, 9 * ms, 0},
	} {
		assert.Equal(t, line.set, c.add(measurement{line.offset, line.trip}, int64(i)), "line %d: set", i)
		assert.Equal(t, line.want, c.offset.Load(), "line %d", i)
	}
	for range kept - 2 {
		c.add(measurement{11 * ms, 3 * ms}, 9)
		assert.Equal(t, 9*ms, c.offset.Load(), "among the last ten")
	}
	c.add(measurement{12 * ms, 3 * ms}, 9)
	assert.Equal(t, 12*ms, c.offset.Load(), "the shortest is forgotten after ten")
	assert.Equal(t, int64(2), c.jumps.Load())
	c.restart()
	assert.Equal(t, int64(0), c.add(measurement{500 * ms, 90 * ms}, 9), "another server")
	assert.Equal(t, 500*ms, c.offset.Load())
	assert.Equal(t, 90*ms, c.trip.Load())
	assert.False(t, c.isStale(9+stale))
	assert.True(t, c.isStale(10+stale))
	assert.Equal(t, int64(0), c.add(measurement{501 * ms, 95 * ms}, 10+stale))
	assert.Equal(t, 501*ms, c.offset.Load(), "after a pause, the last counts, whatever its round trip")
}

// Whenever the server has read its clock during the round trip, the offset is wrong by at most half
// the round trip.
func TestMeasure(t *testing.T) {
	const offset = 77_000
	for sent := int64(0); sent < 10; sent++ {
		for trip := int64(0); trip < 10; trip++ {
			for read := range trip + 1 {
				m := measure(sent+read+offset, sent, sent+trip)
				assert.LessOrEqual(t, max(m.offset-offset, offset-m.offset), (trip+1)/2)
			}
		}
	}
}

func TestInstant(t *testing.T) {
	for ns, ms := range map[int64]int64{1: 1, 1_000_000: 1, 1_000_001: 2, 0: 1, -5: 1, combine.Never - 1: 9223372036855} {
		assert.Equal(t, ms, instant(ns), ns)
	}
}

func TestTurnOf(t *testing.T) {
	for value, want := range map[any][2]int64{
		"7:2000": {7, 2000}, nil: {}, "": {}, "x:1": {}, "7": {}, "7:x": {}, int64(7): {},
	} {
		holder, span := turnOf(value)
		assert.Equal(t, want, [2]int64{int64(holder), span}, value)
	}
}
