package remote

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/store/remote/combine"
	"cellserver/test/peer"
)

// Requests work on each kind of deployment, as reading the keys afterwards shows.
func TestRequests(t *testing.T) {
	single := start(t)
	cluster := peer.StartCluster(t, start, 3, false, nil)
	for name, url := range map[string]string{
		"single": "redis://" + single.Addr, "cluster": cluster.URL(),
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, url)
			l.join("cl:{k}")
			for name, test := range map[string]func(*testing.T, *link){
				"one key": testOneKey, "expiry": testExpiry, "versions": testVersions, "several keys": testSeveralKeys,
				"commands": testCommands, "turns": testTurns, "refusals": testRefusals, "clock": testOffset,
			} {
				t.Run(name, func(t *testing.T) { test(t, &link{l.Backend, t}) })
			}
		})
	}
}

func testOneKey(t *testing.T, l *link) {
	const k = "cl:{k}one"
	assert.Equal(t, []string{"nil"}, values(l.done(read(k))))
	l.done(write(set(k, "nil", "1")))
	assert.Equal(t, []string{"1"}, values(l.ends(combine.Conflict, write(set(k, "nil", "2")))))
	assert.Equal(t, []string{"1"}, values(l.ends(combine.Conflict, write(set(k, "0", "1")))), "what was to be set is there: a conflict")
	l.done(write(set(k, "1", "")))
	assert.Equal(t, []string{""}, values(l.done(read(k))), "an empty value is a value")
	l.done(write(set(k, "", "2\x00\r\n")))
	assert.Equal(t, []string{"2\x00\r\n"}, values(l.ends(combine.Conflict, write(set(k, "2", "nil")))))
	l.done(write(combine.Part{Key: k, Known: []byte("2\x00\r\n")}))
	assert.Equal(t, []string{"2\x00\r\n"}, values(l.ends(combine.Conflict, write(combine.Part{Key: k}))))
	l.done(write(set(k, "2\x00\r\n", "nil")))
	assert.Equal(t, []string{"nil"}, values(l.done(read(k))))
	assert.Equal(t, []string{"nil"}, values(l.ends(combine.Conflict, write(set(k, "2", "3")))))
	l.done(write(set(k, "nil", "nil")))
}

func testExpiry(t *testing.T, l *link) {
	const k = "cl:{k}expiry"
	at := now() + l.Offset(l.Primary(k)) + int64(time.Hour)
	asked := func() combine.Value {
		r := read(k)
		r.Parts[0].Expiry = true
		return l.done(r).Parts[0].Value
	}
	p := set(k, "nil", "1")
	p.Expires = at
	l.done(write(p))
	const ms = int64(time.Millisecond)
	assert.Equal(t, (at+ms-1)/ms*ms, asked().Expires, "rounded up")
	p = set(k, "1", "2")
	p.Expires = combine.KeepExpiry
	l.done(write(p))
	assert.Equal(t, (at+ms-1)/ms*ms, asked().Expires, "the expiry stays")
	l.done(write(set(k, "2", "3")))
	assert.Equal(t, combine.Value{Bytes: []byte("3"), Expires: combine.Never}, asked())
	p = set(k, "3", "4")
	p.Expires = 1
	l.done(write(p))
	assert.Equal(t, combine.Value{Expires: combine.Never}, asked(), "an expiry in the past removes the key")
	testComparedExpiry(t, l, k, at)
}

// testComparedExpiry compares the expiry of a key that does not exist yet.
func testComparedExpiry(t *testing.T, l *link, k string, at int64) {
	expiring := func(known, next string, before, expires int64) *combine.Request {
		p := set(k, known, next)
		p.Before, p.ComparesExpiry, p.Expires = before, true, expires
		return write(p)
	}
	at -= at % int64(time.Millisecond)
	l.done(expiring("nil", "1", combine.Never, combine.Never))
	l.ends(combine.Conflict, expiring("1", "2", at, combine.Never))
	l.done(expiring("1", "2", combine.Never, at))
	l.ends(combine.Conflict, expiring("2", "3", combine.Never, at))
	l.ends(combine.Conflict, expiring("2", "3", at+1e9, at))
	l.done(expiring("2", "3", at, combine.KeepExpiry))
	gone := set(k, "3", "nil")
	gone.Before, gone.ComparesExpiry = combine.Never, true
	l.ends(combine.Conflict, write(gone))
	gone.Before = at
	l.done(write(gone))
}

// A value that begins with the compared version is the same value.
func testVersions(t *testing.T, l *link) {
	const k = "cl:{k}version"
	l.done(write(set(k, "nil", "AAAArest")))
	p := set(k, "AAAAother", "BBBBmore")
	p.Compared = 4
	l.done(write(p))
	assert.Equal(t, []string{"BBBBmore"}, values(l.ends(combine.Conflict, write(p))))
	keep := combine.Part{Key: k, Known: []byte("BBBB"), Compared: 4}
	l.done(write(keep))
	gone := set(k, "BBBB", "nil")
	gone.Compared = 4
	l.done(write(gone))
	assert.Equal(t, []string{"nil"}, values(l.ends(combine.Conflict, write(keep))))
}

func testSeveralKeys(t *testing.T, l *link) {
	const a, b, c = "cl:{k}a", "cl:{k}b", "cl:{k}c"
	l.done(write(set(a, "nil", "1"), set(b, "nil", "2"), combine.Part{Key: c}))
	assert.Equal(t, []string{"1", "2", "nil"}, values(l.ends(combine.Conflict,
		write(set(a, "1", "x"), set(b, "nil", "y"), set(c, "nil", "z")))), "nothing is changed, and all values are shown")
	assert.Equal(t, []string{"1", "2", "nil"}, values(l.done(read(a, b, c))))
	l.done(write(set(a, "1", "nil"), combine.Part{Key: b, Known: []byte("2")}, set(c, "nil", "3")))
	assert.Equal(t, []string{"nil", "2", "3"}, values(l.done(read(a, b, c))))

	const most = 64
	r := write()
	for i := range most {
		r.Parts = append(r.Parts, set(fmt.Sprintf("cl:{k}many%d", i), "nil", "v"))
	}
	l.done(r)
	last := set("cl:{k}many63", "other", "w")
	r.Parts[most-1] = last
	for i := range most - 1 {
		r.Parts[i] = set(r.Parts[i].Key, "v", "w")
	}
	l.ends(combine.Conflict, r)
	assert.Equal(t, strings.Repeat("v", most), strings.Join(values(r), ""))
}

func testCommands(t *testing.T, l *link) {
	const k = "cl:{k}raw"
	assert.Equal(t, "OK", raw(l.done(call("SET", k, "5"))))
	assert.Equal(t, int64(6), l.done(call("INCR", k)).Reply.Raw)
	assert.Equal(t, "6", raw(l.done(call("GET", k))))
	assert.Nil(t, l.done(call("GET", k+"absent")).Reply.Raw)
	assert.Equal(t, []any{"6", nil}, l.done(call("MGET", k, k+"absent")).Reply.Raw)
	first, second := call("SET", k, "x"), call("GET", k)
	require.False(t, l.send(first, second, read(k)))
	assert.Equal(t, "x", raw(second), "one pipeline, in its order")
}

func testTurns(t *testing.T, l *link) {
	const k, span = "cl:{k}turn", int64(time.Hour)
	turn := func(op combine.TurnOp, holder uint64) combine.Reply {
		r := &combine.Request{Kind: combine.TurnOnly, Turn: combine.Turn{Op: op, Key: k, Holder: holder, Span: span}}
		require.False(t, l.sendTo(l.Primary(k), r))
		require.Equal(t, combine.Done, r.Reply.Status)
		return r.Reply
	}
	assert.Zero(t, turn(combine.LookTurn, 0).Holder)
	assert.Zero(t, turn(combine.TakeTurn, 7).Holder, "the turn was free")
	reply := turn(combine.TakeTurn, 8)
	assert.Equal(t, uint64(7), reply.Holder)
	assert.Equal(t, span, reply.Span)
	assert.Equal(t, uint64(7), turn(combine.LookTurn, 0).Holder)
	turn(combine.GiveTurn, 8)
	assert.Equal(t, uint64(7), turn(combine.LookTurn, 0).Holder, "only the holder of a turn gives it back")
	turn(combine.GiveTurn, 7)
	assert.Zero(t, turn(combine.LookTurn, 0).Holder)
	r := write(set(k, "nil", "1"))
	r.Turn = combine.Turn{Op: combine.TakeTurn, Key: k, Holder: 9, Span: span}
	assert.Zero(t, l.done(r).Reply.Holder, "with a change")
	r = read(k)
	r.Turn = combine.Turn{Op: combine.LookTurn, Key: k}
	assert.Equal(t, uint64(9), l.done(r).Reply.Holder, "with a read")
	turn(combine.GiveTurn, 9)
}

func testRefusals(t *testing.T, l *link) {
	const k, list = "cl:{k}refused", "cl:{k}list"
	l.done(call("RPUSH", list, "x"))
	refused := []*combine.Request{
		read(list), read(k, list), write(set(list, "nil", "1")), write(set(list, "1", "2")), write(set(list, "1", "nil")),
		write(set(k, "nil", "1"), set(list, "nil", "1")), call("INCR", list),
	}
	later := read(k)
	require.False(t, l.send(append(refused, later)...))
	for i, r := range refused {
		assert.Equal(t, combine.Refused, r.Reply.Status, "request %d", i)
		assert.True(t, strings.HasPrefix(r.Reply.Error, "WRONGTYPE "), r.Reply.Error)
	}
	assert.Equal(t, []string{"nil"}, values(later), "nothing was changed, and the connection goes on")
	assert.Equal(t, combine.Done, later.Reply.Status)
}

// The offset is wrong by at most half a round trip.
func testOffset(t *testing.T, l *link) {
	const k = "cl:{k}"
	clockOf := func(r *combine.Request) int64 {
		pair := l.done(r).Reply.Raw.([]any)
		var seconds, micros int64
		_, err := fmt.Sscan(fmt.Sprint(pair[0], " ", pair[1]), &seconds, &micros)
		require.NoError(t, err)
		return seconds*1e9 + micros*1e3
	}
	r := &combine.Request{Kind: combine.Command, Command: [][]byte{[]byte("TIME")}, Parts: []combine.Part{{Key: k}}}
	before := now()
	server := clockOf(r)
	after := now()
	offset := l.Offset(l.Primary(k))
	const micro = int64(time.Microsecond)
	trip := l.RoundTrip(l.Primary(k))
	assert.LessOrEqual(t, before+offset-trip/2-micro, server)
	assert.GreaterOrEqual(t, after+offset+trip/2+micro, server)
}

// A server that has lost its scripts gets them again, and the caller sends the request again.
func TestScriptsAreLoadedAgain(t *testing.T) {
	s := start(t)
	l := open(t, "redis://"+s.Addr)
	l.join("cl:a")
	several := func() *combine.Request { return write(set("cl:a", "nil", "1"), set("cl:b", "nil", "2")) }
	l.done(several())
	peer.Ask(t, s.Addr, "script", "flush")
	peer.Ask(t, s.Addr, "flushall")
	l.ends(combine.Redirected, several())
	l.done(several())
	peer.Ask(t, s.Addr, "script", "flush")
	l.ends(combine.Redirected, read("cl:a", "cl:b"))
	assert.Equal(t, []string{"1", "2"}, values(l.done(read("cl:a", "cl:b"))))
}

// Valkey needs no script for one key, and Redis has no SET IFEQ, so no request uses the other
// server's way.
func TestSingleKeysUseTheBestWay(t *testing.T) {
	s := start(t)
	l := open(t, "redis://"+s.Addr)
	l.join("cl:a")
	l.done(write(set("cl:a", "nil", "1")))
	l.done(write(set("cl:a", "1", "2")))
	l.done(write(set("cl:a", "2", "nil")))
	stats := fmt.Sprint(peer.Ask(t, s.Addr, "info", "commandstats"))
	assert.Equal(t, !native, strings.Contains(stats, "cmdstat_evalsha:calls=3"))
	assert.Equal(t, native, !strings.Contains(stats, "cmdstat_evalsha:"))
}
