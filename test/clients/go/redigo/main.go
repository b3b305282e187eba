// Command redigo plays the scenario with redigo, and a pool that tests each connection before its use.
package main

import (
	"errors"
	"os"
	"strings"
	"time"

	"clients/scenario"

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

// do makes one call on a connection of the pool.
func do(pool *redis.Pool, command string, args ...any) (any, error) {
	c := pool.Get()
	defer c.Close()
	return c.Do(command, args...)
}

func refused(_ any, err error) string {
	var reply redis.Error
	scenario.Equal(errors.As(err, &reply), true)
	return reply.Error()
}

func main() {
	scenario.Client("redigo", "github.com/gomodule/redigo")
	pool := open(0)
	defer pool.Close()
	scenario.Equal(scenario.Must(throttle(pool)), []int{0, 16, 15, -1, 2})
	scenario.Ok("throttle Do")
	counters(pool)
	c := pool.Get()
	pipeline(c)
	transaction(c)
	c.Close()
	refusals(pool)
	database(pool)
	scenario.Restart(func() error {
		reply, err := throttle(pool)
		if err == nil {
			scenario.Equal(reply, []int{0, 16, 15, -1, 2})
		}
		return err
	})
}

func throttle(pool *redis.Pool) ([]int, error) {
	return redis.Ints(do(pool, "CL.THROTTLE", "user123", 15, 30, 60, 1))
}

func counters(pool *redis.Pool) {
	scenario.Equal(scenario.Must(redis.Int(do(pool, "INCR", "n"))), 1)
	scenario.Equal(scenario.Must(redis.Int(do(pool, "INCR", "n"))), 2)
	scenario.Equal(scenario.Must(redis.Bool(do(pool, "EXPIRE", "n", 100))), true)
	ttl := scenario.Must(redis.Int(do(pool, "TTL", "n")))
	scenario.Equal(ttl > 50 && ttl <= 100, true)
	scenario.Ok("counters")
}

func pipeline(c redis.Conn) {
	for range 10 {
		c.Send("CL.THROTTLE", "pipe", 99, 1, 1000, 1)
	}
	c.Flush()
	for i := range 10 {
		scenario.Equal(scenario.Must(redis.Ints(c.Receive()))[:3], []int{0, 100, 99 - i})
	}
	scenario.Ok("pipeline")
}

func transaction(c redis.Conn) {
	c.Send("MULTI")
	c.Send("INCR", "n")
	c.Send("CL.THROTTLE", "tx", 15, 30, 60, 1)
	replies := scenario.Must(redis.Values(c.Do("EXEC")))
	scenario.Equal(replies[0], int64(3))
	scenario.Equal(scenario.Must(redis.Ints(replies[1], nil)), []int{0, 16, 15, -1, 2})
	scenario.Ok("transaction")
}

// refusals checks how the client returns errors that the server sends.
func refusals(pool *redis.Pool) {
	scenario.Equal(strings.HasPrefix(refused(do(pool, "INCR", "pipe")), "WRONGTYPE "), true)
	scenario.Equal(refused(do(pool, "CL.THROTTLE", "k", 15, 30, "x")), "ERR value is not an integer or out of range: period (units are ms, s, m, h and d)")
	scenario.Ok("errors")
}

// database opens another database, which must not have the keys of the first.
func database(pool *redis.Pool) {
	two := open(2)
	scenario.Equal(scenario.Must(redis.Int(do(two, "EXISTS", "n"))), 0)
	scenario.Equal(scenario.Must(redis.Int(do(two, "INCR", "n"))), 1)
	scenario.Equal(scenario.Must(redis.Int(do(pool, "GET", "n"))), 3)
	two.Close()
	scenario.Ok("database")
}
