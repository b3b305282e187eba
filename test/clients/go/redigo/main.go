// redigo: a pool that tests what it lends.
package main

import (
	"errors"
	"os"
	"strings"
	"time"

	"clients/story"

	"github.com/gomodule/redigo/redis"
)

func open(db int) *redis.Pool {
	return &redis.Pool{
		MaxIdle: 3,
		Dial: func() (redis.Conn, error) {
			return redis.Dial("tcp", "127.0.0.1:"+os.Getenv("PORT"), redis.DialDatabase(db))
		},
		TestOnBorrow: func(c redis.Conn, _ time.Time) error {
			_, err := c.Do("PING")
			return err
		},
	}
}

// do borrows a connection for one call.
func do(pool *redis.Pool, command string, args ...any) (any, error) {
	c := pool.Get()
	defer c.Close()
	return c.Do(command, args...)
}

func refused(_ any, err error) string {
	var reply redis.Error
	story.Equal(errors.As(err, &reply), true)
	return reply.Error()
}

func main() {
	story.Client("redigo", "github.com/gomodule/redigo")
	pool := open(0)
	defer pool.Close()
	story.Equal(story.Must(throttle(pool)), []int{0, 16, 15, -1, 2})
	story.Ok("throttle Do")
	counters(pool)
	c := pool.Get()
	pipeline(c)
	transaction(c)
	c.Close()
	refusals(pool)
	database(pool)
	story.Restart(func() error {
		reply, err := throttle(pool)
		if err == nil {
			story.Equal(reply, []int{0, 16, 15, -1, 2})
		}
		return err
	})
}

func throttle(pool *redis.Pool) ([]int, error) {
	return redis.Ints(do(pool, "CL.THROTTLE", "user123", 15, 30, 60, 1))
}

func counters(pool *redis.Pool) {
	story.Equal(story.Must(redis.Int(do(pool, "INCR", "n"))), 1)
	story.Equal(story.Must(redis.Int(do(pool, "INCR", "n"))), 2)
	story.Equal(story.Must(redis.Bool(do(pool, "EXPIRE", "n", 100))), true)
	ttl := story.Must(redis.Int(do(pool, "TTL", "n")))
	story.Equal(ttl > 50 && ttl <= 100, true)
	story.Ok("counters")
}

func pipeline(c redis.Conn) {
	for range 10 {
		c.Send("CL.THROTTLE", "pipe", 99, 1, 1000, 1)
	}
	c.Flush()
	for i := range 10 {
		story.Equal(story.Must(redis.Ints(c.Receive()))[:3], []int{0, 100, 99 - i})
	}
	story.Ok("pipeline")
}

func transaction(c redis.Conn) {
	c.Send("MULTI")
	c.Send("INCR", "n")
	c.Send("CL.THROTTLE", "tx", 15, 30, 60, 1)
	replies := story.Must(redis.Values(c.Do("EXEC")))
	story.Equal(replies[0], int64(3))
	story.Equal(story.Must(redis.Ints(replies[1], nil)), []int{0, 16, 15, -1, 2})
	story.Ok("transaction")
}

// refusals are errors that the server sends.
func refusals(pool *redis.Pool) {
	story.Equal(strings.HasPrefix(refused(do(pool, "INCR", "pipe")), "WRONGTYPE "), true)
	story.Equal(refused(do(pool, "CL.THROTTLE", "k", 15, 30, "x")), "ERR value is not an integer or out of range")
	story.Ok("errors")
}

// database opens another database, which does not have the keys of the first.
func database(pool *redis.Pool) {
	two := open(2)
	story.Equal(story.Must(redis.Int(do(two, "EXISTS", "n"))), 0)
	story.Equal(story.Must(redis.Int(do(two, "INCR", "n"))), 1)
	story.Equal(story.Must(redis.Int(do(pool, "GET", "n"))), 3)
	two.Close()
	story.Ok("database")
}
