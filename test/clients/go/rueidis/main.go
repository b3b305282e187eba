// Command rueidis plays the scenario with rueidis, which sends all calls over one connection.
package main

import (
	"context"
	"os"
	"strings"

	"clients/scenario"

	"github.com/redis/rueidis"
)

var ctx = context.Background()

func open(db int) rueidis.Client {
	return scenario.Must(rueidis.NewClient(rueidis.ClientOption{
		InitAddress:  []string{"127.0.0.1:" + os.Getenv("PORT")},
		SelectDB:     db,
		AlwaysRESP2:  os.Getenv("PROTOCOL") == "2",
		DisableCache: os.Getenv("PROTOCOL") == "2", // rueidis cannot cache in RESP2
	}))
}

func main() {
	scenario.Client("rueidis", "github.com/redis/rueidis")
	client := open(0)
	defer client.Close()
	scenario.Equal(scenario.Must(throttle(client)), []int64{0, 16, 15, -1, 2})
	scenario.Ok("throttle B().Arbitrary")
	counters(client)
	pipeline(client)
	transaction(client)
	refusals(client)
	database(client)
	scenario.Restart(func() error {
		reply, err := throttle(client)
		if err == nil {
			scenario.Equal(reply, []int64{0, 16, 15, -1, 2})
		}
		return err
	})
}

// limit builds a call of CL.THROTTLE.
func limit(client rueidis.Client, key string, limit ...string) rueidis.Completed {
	return client.B().Arbitrary("CL.THROTTLE").Keys(key).Args(limit...).Build()
}

func throttle(client rueidis.Client) ([]int64, error) {
	return client.Do(ctx, limit(client, "user123", "15", "30", "60", "1")).AsIntSlice()
}

func counters(client rueidis.Client) {
	scenario.Equal(scenario.Must(client.Do(ctx, client.B().Incr().Key("n").Build()).ToInt64()), int64(1))
	scenario.Equal(scenario.Must(client.Do(ctx, client.B().Incr().Key("n").Build()).ToInt64()), int64(2))
	scenario.Equal(scenario.Must(client.Do(ctx, client.B().Expire().Key("n").Seconds(100).Build()).ToInt64()), int64(1))
	ttl := scenario.Must(client.Do(ctx, client.B().Ttl().Key("n").Build()).ToInt64())
	scenario.Equal(ttl > 50 && ttl <= 100, true)
	scenario.Ok("counters")
}

func pipeline(client rueidis.Client) {
	calls := rueidis.Commands{}
	for range 10 {
		calls = append(calls, limit(client, "pipe", "99", "1", "1000", "1"))
	}
	for i, reply := range client.DoMulti(ctx, calls...) {
		scenario.Equal(scenario.Must(reply.AsIntSlice())[:3], []int64{0, 100, 99 - int64(i)})
	}
	scenario.Ok("pipeline")
}

func transaction(client rueidis.Client) {
	client.Dedicated(func(c rueidis.DedicatedClient) error {
		replies := c.DoMulti(ctx, c.B().Multi().Build(), c.B().Incr().Key("n").Build(),
			limit(client, "tx", "15", "30", "60", "1"), c.B().Exec().Build())
		done := scenario.Must(replies[3].ToArray())
		scenario.Equal(scenario.Must(done[0].ToInt64()), int64(3))
		scenario.Equal(scenario.Must(done[1].AsIntSlice()), []int64{0, 16, 15, -1, 2})
		return nil
	})
	scenario.Ok("transaction")
}

// refusals checks how the client returns errors that the server sends.
func refusals(client rueidis.Client) {
	wrong, _ := rueidis.IsRedisErr(client.Do(ctx, client.B().Incr().Key("pipe").Build()).Error())
	scenario.Equal(strings.HasPrefix(wrong.Error(), "WRONGTYPE "), true)
	wrong, _ = rueidis.IsRedisErr(client.Do(ctx, limit(client, "k", "15", "30", "x")).Error())
	scenario.Equal(wrong.Error(), "value is not an integer or out of range: period (units are ms, s, m, h and d)") // rueidis removes ERR
	scenario.Ok("errors")
}

// database opens another database, which must not have the keys of the first.
func database(client rueidis.Client) {
	two := open(2)
	scenario.Equal(scenario.Must(two.Do(ctx, two.B().Exists().Key("n").Build()).ToInt64()), int64(0))
	scenario.Equal(scenario.Must(two.Do(ctx, two.B().Incr().Key("n").Build()).ToInt64()), int64(1))
	scenario.Equal(scenario.Must(client.Do(ctx, client.B().Get().Key("n").Build()).AsInt64()), int64(3))
	two.Close()
	scenario.Ok("database")
}
