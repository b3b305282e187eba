// Command goredis plays the scenario with a client of go-redis: goredis client|universal|ring
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"clients/scenario"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func open(db int) redis.UniversalClient {
	addr := "127.0.0.1:" + os.Getenv("PORT")
	protocol, _ := strconv.Atoi(os.Getenv("PROTOCOL")) // 0: the default
	switch os.Args[1] {
	case "universal":
		return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{addr}, DB: db, Protocol: protocol})
	case "ring":
		addrs := map[string]string{"1": addr}
		for i, port := range strings.Fields(os.Getenv("OTHER_PORTS")) {
			addrs[strconv.Itoa(i+2)] = "127.0.0.1:" + port
		}
		return redis.NewRing(&redis.RingOptions{Addrs: addrs, DB: db, Protocol: protocol})
	}
	return redis.NewClient(&redis.Options{Addr: addr, DB: db, Protocol: protocol, TLSConfig: tlsConfig()})
}

// tlsConfig returns the configuration for TLS, or nil without TLS.
func tlsConfig() *tls.Config {
	dir := os.Getenv("TLS")
	if dir == "" {
		return nil
	}
	authorities := x509.NewCertPool()
	scenario.Equal(authorities.AppendCertsFromPEM(scenario.Must(os.ReadFile(dir+"/ca.crt"))), true)
	own := scenario.Must(tls.LoadX509KeyPair(dir+"/client.crt", dir+"/client.key"))
	return &tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{own}}
}

func main() {
	scenario.Client("go-redis "+os.Args[1], "github.com/redis/go-redis/v9")
	rdb := open(0)
	defer rdb.Close()
	scenario.Equal(scenario.Must(throttle(rdb)), []int64{0, 16, 15, -1, 2})
	scenario.Ok("throttle Do")
	counters(rdb)
	pipeline(rdb)
	transaction(rdb)
	refusals(rdb)
	database(rdb)
	scenario.Restart(func() error {
		reply, err := throttle(rdb)
		if err == nil && os.Args[1] != "ring" { // the ring may have the key on a server that was not restarted
			scenario.Equal(reply, []int64{0, 16, 15, -1, 2})
		}
		return err
	})
}

func throttle(rdb redis.UniversalClient) ([]int64, error) {
	return rdb.Do(ctx, "CL.THROTTLE", "user123", 15, 30, 60, 1).Int64Slice()
}

func counters(rdb redis.UniversalClient) {
	scenario.Equal(scenario.Must(rdb.Incr(ctx, "n").Result()), int64(1))
	scenario.Equal(scenario.Must(rdb.Incr(ctx, "n").Result()), int64(2))
	scenario.Equal(scenario.Must(rdb.Expire(ctx, "n", 100*time.Second).Result()), true)
	ttl := scenario.Must(rdb.TTL(ctx, "n").Result())
	scenario.Equal(ttl > 50*time.Second && ttl <= 100*time.Second, true)
	scenario.Ok("counters")
}

func pipeline(rdb redis.UniversalClient) {
	replies := scenario.Must(rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for range 10 {
			pipe.Do(ctx, "CL.THROTTLE", "pipe", 99, 1, 1000, 1)
		}
		return nil
	}))
	for i, reply := range replies {
		scenario.Equal(scenario.Must(reply.(*redis.Cmd).Int64Slice())[:3], []int64{0, 100, 99 - int64(i)})
	}
	scenario.Ok("pipeline")
}

func transaction(rdb redis.UniversalClient) {
	replies := scenario.Must(rdb.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.Incr(ctx, "n")
		tx.Do(ctx, "CL.THROTTLE", "tx", 15, 30, 60, 1)
		return nil
	}))
	scenario.Equal(replies[0].(*redis.IntCmd).Val(), int64(3))
	scenario.Equal(scenario.Must(replies[1].(*redis.Cmd).Int64Slice()), []int64{0, 16, 15, -1, 2})
	scenario.Ok("transaction")
}

// refusals checks how the client returns errors that the server sends.
func refusals(rdb redis.UniversalClient) {
	scenario.Equal(redis.HasErrorPrefix(rdb.Incr(ctx, "pipe").Err(), "WRONGTYPE"), true)
	scenario.Equal(fmt.Sprint(rdb.Do(ctx, "CL.THROTTLE", "k", 15, 30, "x").Err()),
		"ERR value is not an integer or out of range: period (units are ms, s, m, h and d)")
	scenario.Ok("errors")
}

// database opens another database, which must not have the keys of the first.
func database(rdb redis.UniversalClient) {
	two := open(2)
	scenario.Equal(scenario.Must(two.Exists(ctx, "n").Result()), int64(0))
	scenario.Equal(scenario.Must(two.Incr(ctx, "n").Result()), int64(1))
	scenario.Equal(scenario.Must(rdb.Get(ctx, "n").Int()), 3)
	two.Close()
	scenario.Ok("database")
}
