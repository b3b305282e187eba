package migrate

import (
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// setLog is a sorted set of the milliseconds at which calls were made.
type setLog struct {
	rdb    *redis.Client
	limit  int64
	period time.Duration
	now    func() int64 // ns
}

func (l setLog) admits(key string) bool {
	ms := l.now() / int64(time.Millisecond)
	l.rdb.ZRemRangeByScore(ctx, key, "0", strconv.FormatInt(ms-l.period.Milliseconds(), 10))
	l.rdb.ZAdd(ctx, key, redis.Z{Score: float64(ms), Member: ms})
	count := l.rdb.ZCard(ctx, key).Val()
	l.rdb.Expire(ctx, key, l.period)
	return count <= l.limit
}

// oldLog counts in a period of 10 seconds or more.
func oldLog(period time.Duration) oldWay {
	return func(rdb *redis.Client, now func() int64) asks {
		return func(call) bool { return setLog{rdb, 5, period, now}.admits("log") }
	}
}

const logCommand = "CL.SLIDINGLOG user 5 10 N"

var logWay = way{
	name: "log", command: logCommand, head: headOf("10 s"),
	rows: []row{
		logRow("one every 2.5 s, 2 minutes", every(2500*time.Millisecond, 48), 48, 48, 48, 48, 4, 4),
		logRow("5 within 10 s, once a minute", onceAMinute(), 25, 25, 25, 25, 5, 5),
		logRow("one a second, 2 minutes", every(time.Second, 120), 120, 5, 60, 65, 5, 5),
		logRow("20 within a millisecond", every(50*time.Microsecond, 20), 20, 20, 5, 5, 20, 5),
	},
}

func onceAMinute() (calls []call) {
	for minute := range 5 {
		calls = append(calls, after(time.Duration(minute)*time.Minute, every(time.Second, 5))...)
	}
	return calls
}

func logRow(traffic string, calls []call, want ...int64) row {
	return row{traffic, compare(calls, 10*time.Second, onModel(oldLog(10*time.Second)), command(logCommand)), want}
}
