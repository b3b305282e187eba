package migrate

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
)

// jsonBuckets are two token buckets per user, per minute and per day, as JSON. Each bucket is a
// funnel.
type jsonBuckets struct {
	rdb         *redis.Client
	minute, day funnel       // full
	now         func() int64 // ns
}

var errLimited = errors.New("limited")

// Watch calls take, and calls it again if another client's EXEC came first.
func (j jsonBuckets) take(tx *redis.Tx) error {
	minute, day := j.minute, j.day
	for i, text := range tx.MGet(ctx, "minute", "day").Val() {
		parse(text, []*funnel{&minute, &day}[i])
	}
	if !minute.admits(j.now()) || !day.admits(j.now()) {
		return errLimited // and nothing is written
	}
	_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
		return p.MSet(ctx, "minute", minute.json(), "day", day.json()).Err()
	})
	return err
}

func (j jsonBuckets) admits() bool {
	for range 3 {
		if err := j.rdb.Watch(ctx, j.take, "minute", "day"); err != redis.TxFailedErr {
			return err == nil
		}
	}
	return false
}

func parse(text any, f *funnel) {
	if text == nil {
		return // the bucket is full
	}
	if err := json.Unmarshal([]byte(text.(string)), f); err != nil {
		panic(err)
	}
}

func (f funnel) json() string {
	text, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func newJSON(rdb *redis.Client, now func() int64) jsonBuckets {
	minute, day := full(20, 20./60), full(100, 100./86400)
	minute.At, day.At = now(), now()
	return jsonBuckets{rdb, minute, day, now}
}

func oldJSON(rdb *redis.Client, now func() int64) asks {
	return func(call) bool { return newJSON(rdb, now).admits() }
}

const jsonCommand = "CL.ALL 2 THROTTLE user:minute 19 20 60 N THROTTLE user:day 99 100 86400 N"

var jsonWay = way{
	name: "json", command: jsonCommand, head: headOf("60 s"),
	rows: []row{
		{"one every 4 s, 5 minutes",
			compare(every(4*time.Second, 75), time.Minute, onCellserver(oldJSON), command(jsonCommand)),
			[]int64{75, 75, 75, 75, 15, 15}},
		{"one a second, 10 minutes",
			compare(every(time.Second, 600), time.Minute, onCellserver(oldJSON), command(jsonCommand)),
			[]int64{600, 100, 100, 600, 39, 39}},
		{"a client tries three times, and each time another client's call comes before its `EXEC`", threeComeBetween,
			[]int64{4, 3, 4, 3, 3, 4}},
	},
}

func threeComeBetween(p *place) []int64 {
	t, new := newTally(time.Minute), command(jsonCommand)(p)
	slow := newJSON(p.cellserver(), p.clock.Now)
	comesBetween := func(again func()) func() {
		return func() {
			t.add(p.asked(), newJSON(p.cellserver(), p.clock.Now).admits(), new(p.asked()))
			before(slow.rdb, "multi", again)
		}
	}
	before(slow.rdb, "multi", comesBetween(comesBetween(comesBetween(func() {}))))
	t.add(p.asked(), slow.admits(), new(p.asked()))
	return t.numbers()
}

// The JSON has no expiry.
func TestBucketsInJSONStay(t *testing.T) {
	p := newPlace(t)
	rdb := p.cellserver()
	assert.True(t, newJSON(rdb, p.clock.Now).admits())
	assert.True(t, allowed(rdb, jsonCommand, 1))
	p.at(30 * 24 * time.Hour)
	assert.EqualValues(t, 2, rdb.Exists(ctx, "minute", "day").Val())
	assert.EqualValues(t, 0, rdb.Exists(ctx, "user:minute", "user:day").Val())
}
