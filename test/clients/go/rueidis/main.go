// rueidis, whose calls all share one connection.
package main

import (
	"context"
	"os"
	"strings"

	"clients/story"

	"github.com/redis/rueidis"
)

var ctx = context.Background()

func open(db int) rueidis.Client {
	return story.Must(rueidis.NewClient(rueidis.ClientOption{
		InitAddress:  []string{"127.0.0.1:" + os.Getenv("PORT")},
		SelectDB:     db,
		AlwaysRESP2:  os.Getenv("PROTOCOL") == "2",
		DisableCache: os.Getenv("PROTOCOL") == "2", // where rueidis cannot cache
	}))
}

func main() {
	story.Client("rueidis", "github.com/redis/rueidis")
	client := open(0)
	defer client.Close()
	story.Equal(story.Must(throttle(client)), []int64{0, 16, 15, -1, 2})
	story.Ok("throttle B().Arbitrary")
	counters(client)
	pipeline(client)
	transaction(client)
	refusals(client)
	database(client)
	story.Restart(func() error {
		reply, err := throttle(client)
		if err == nil {
			story.Equal(reply, []int64{0, 16, 15, -1, 2})
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
	story.Equal(story.Must(client.Do(ctx, client.B().Incr().Key("n").Build()).ToInt64()), int64(1))
	story.Equal(story.Must(client.Do(ctx, client.B().Incr().Key("n").Build()).ToInt64()), int64(2))
	story.Equal(story.Must(client.Do(ctx, client.B().Expire().Key("n").Seconds(100).Build()).ToInt64()), int64(1))
	ttl := story.Must(client.Do(ctx, client.B().Ttl().Key("n").Build()).ToInt64())
	story.Equal(ttl > 50 && ttl <= 100, true)
	story.Ok("counters")
}

func pipeline(client rueidis.Client) {
	calls := rueidis.Commands{}
	for range 10 {
		calls = append(calls, limit(client, "pipe", "99", "1", "1000", "1"))
	}
	for i, reply := range client.DoMulti(ctx, calls...) {
		story.Equal(story.Must(reply.AsIntSlice())[:3], []int64{0, 100, 99 - int64(i)})
	}
	story.Ok("pipeline")
}

func transaction(client rueidis.Client) {
	client.Dedicated(func(c rueidis.DedicatedClient) error {
		replies := c.DoMulti(ctx, c.B().Multi().Build(), c.B().Incr().Key("n").Build(),
			limit(client, "tx", "15", "30", "60", "1"), c.B().Exec().Build())
		done := story.Must(replies[3].ToArray())
		story.Equal(story.Must(done[0].ToInt64()), int64(3))
		story.Equal(story.Must(done[1].AsIntSlice()), []int64{0, 16, 15, -1, 2})
		return nil
	})
	story.Ok("transaction")
}

// refusals are errors that the server sends.
func refusals(client rueidis.Client) {
	wrong, _ := rueidis.IsRedisErr(client.Do(ctx, client.B().Incr().Key("pipe").Build()).Error())
	story.Equal(strings.HasPrefix(wrong.Error(), "WRONGTYPE "), true)
	wrong, _ = rueidis.IsRedisErr(client.Do(ctx, limit(client, "k", "15", "30", "x")).Error())
	story.Equal(wrong.Error(), "value is not an integer or out of range") // rueidis takes the ERR off
	story.Ok("errors")
}

// database opens another database, which does not have the keys of the first.
func database(client rueidis.Client) {
	two := open(2)
	story.Equal(story.Must(two.Do(ctx, two.B().Exists().Key("n").Build()).ToInt64()), int64(0))
	story.Equal(story.Must(two.Do(ctx, two.B().Incr().Key("n").Build()).ToInt64()), int64(1))
	story.Equal(story.Must(client.Do(ctx, client.B().Get().Key("n").Build()).AsInt64()), int64(3))
	two.Close()
	story.Ok("database")
}
