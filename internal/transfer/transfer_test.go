package transfer

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/form"
	"cellserver/internal/rdb"
)

const (
	tat     = int64(1_800_000_000_123_456_789) // in Unix nanoseconds
	rateTAT = "316771200.12345678"             // nearly the same, in seconds since 2017, as redis_rate writes it
)

func TestItems(t *testing.T) {
	const expires = tat/1_000_000 + 1
	leases := []byte("\x00cl1c\x00\x00\x00\x00\x00\x00\x00\x00\x01\x18\xfa\xe2\x7e\x5c\x8c\xcd\x15\x02me\x00")
	for _, c := range []struct {
		rec  rdb.Record
		want string // kind and value, or why it is left out
	}{
		{rdb.Record{Integer: tat, IsInteger: true, Expires: expires}, "limiter t"},
		{rdb.Record{Bytes: fmt.Append(nil, tat), Expires: expires}, "limiter t"},
		{rdb.Record{Integer: tat, IsInteger: true, Expires: expires - 2000}, "limiter t"},
		{rdb.Record{Integer: tat, IsInteger: true, Expires: expires + 2000}, "limiter t"},
		{rdb.Record{Integer: tat, IsInteger: true, Expires: expires - 2001}, "string 1800000000123456789"},
		{rdb.Record{Integer: tat, IsInteger: true, Expires: expires + 2001}, "string 1800000000123456789"},
		{rdb.Record{Integer: tat, IsInteger: true, Expires: rdb.Never}, "string 1800000000123456789"},
		{rdb.Record{Key: []byte("cell:a"), Integer: tat, IsInteger: true, Expires: rdb.Never}, "limiter t"},
		{rdb.Record{Key: []byte("cell:a"), Integer: -5, IsInteger: true, Expires: rdb.Never}, "string -5"},
		{rdb.Record{Key: []byte("cell:a"), Bytes: []byte("text"), Expires: rdb.Never}, "string text"},
		{rdb.Record{Bytes: fmt.Append(nil, rateTAT), Expires: expires + 999}, "limiter t"},
		{rdb.Record{Bytes: fmt.Append(nil, rateTAT), Expires: expires - 2001}, "string " + rateTAT},
		{rdb.Record{Bytes: fmt.Append(nil, rateTAT), Expires: expires + 2001}, "string " + rateTAT},
		{rdb.Record{Bytes: fmt.Append(nil, rateTAT), Expires: rdb.Never}, "string " + rateTAT},
		{rdb.Record{Integer: 316771200, IsInteger: true, Expires: expires}, "limiter t"},
		{rdb.Record{Bytes: []byte("NaN"), Expires: expires}, "string NaN"},
		{rdb.Record{Bytes: []byte("-1e300"), Expires: expires}, "string -1e300"},
		{rdb.Record{Bytes: []byte("1e300"), Expires: expires}, "string 1e300"},
		{rdb.Record{Bytes: leases, Expires: rdb.Never}, "limiter c"},
		{rdb.Record{Bytes: []byte("\x00cl2t"), Expires: rdb.Never}, "limiter whose state cannot be read: " +
			`the form "\x00cl2" is unknown: it was written by a newer version`},
		{rdb.Record{Type: rdb.SortedSet}, "zset"},
		{rdb.Record{Type: rdb.Module, Module: "vectorset"}, "value of the module vectorset"},
	} {
		r := &reader{asThrottle: "cell:*"}
		it, got := r.read(&c.rec)
		switch {
		case got != "":
		case it.state != nil:
			got = "limiter " + string(it.state.Kind.Letter())
			require.Equal(t, form.Milliseconds(it.state.Expires()), it.expires)
			require.Equal(t, rdb.AppendDump(nil, form.Append(nil, it.state)), it.payload())
		default:
			got = "string " + string(it.value)
			require.Equal(t, c.rec.Expires, it.expires)
		}
		require.Equal(t, c.want, got)
	}
}

func TestReport(t *testing.T) {
	r, ticks := new(report), make(chan time.Time)
	r.progress = func() float64 { return 0.256 }
	var progress, summary bytes.Buffer
	stop := r.showProgress(&progress, ticks)
	for i := range 7 {
		r.begin()
		r.refuse("each a list", fmt.Append(nil, "key", i))
	}
	r.written(true)
	r.written(false)
	r.written(false)
	r.refuse("each a set", bytes.Repeat([]byte("k\x00"), 100))
	r.count(&r.expired)
	ticks <- time.Time{}
	stop()
	require.Equal(t, "26 %: 7 keys read, 3 written\n", progress.String())
	r.print(&summary, "imported")
	require.Equal(t, `imported 3 keys: 2 strings, 1 limiters
left out: 1 keys that have expired
left out: 7 keys, each a list: "key0", "key1", "key2", ...
left out: 1 keys, each a set: "k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00k\x00"
`, summary.String())
}
