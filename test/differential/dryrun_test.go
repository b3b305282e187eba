package differential

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/acl"
	"cellserver/test/peer"
)

// shared are the commands that both servers have, but for those whose arguments they read in other
// ways.
func shared(t *testing.T, ours, theirs *redis.Client) (list []acl.Command) {
	known := make(map[string]acl.Command)
	for _, command := range commandsOf(t, ours) {
		known[command.Name] = command
	}
	for _, command := range commandsOf(t, theirs) {
		mine, ok := known[command.Name]
		if !ok || command.Name == "cluster" { // which has subcommands there
			continue
		}
		list = append(list, command)
		slices.Sort(command.Categories)
		slices.Sort(mine.Categories)
		assert.Equal(t, fmt.Sprint(command.Categories), fmt.Sprint(mine.Categories), command.Name)
	}
	return list
}

// Rules at random let users make the same calls at random here and in a redis-server, as ACL DRYRUN
// says. A command that both have is in the same categories.
func TestDryRunsAreRedis(t *testing.T) {
	a, b := peer.Start(t), peer.StartRedis(t)
	ours := redis.NewClient(&redis.Options{Addr: a.Addr, TLSConfig: a.TLS, Protocol: 2})
	theirs := redis.NewClient(&redis.Options{Addr: b.Addr, Protocol: 2})
	defer ours.Close()
	defer theirs.Close()
	list := shared(t, ours, theirs)
	require.Greater(t, len(list), 130)
	answers := make(map[string]int)
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 4))
		same(t, ours, theirs, []string{"ACL", "SETUSER", "u", []string{"+@all", "+@read", "+@string"}[random.IntN(3)], "~a",
			"%R~k*"})
		for range 3 {
			same(t, ours, theirs, append([]string{"ACL", "SETUSER", "u"}, rules(random, list)...)) // which may be none
		}
		for range 25 {
			answer, _, _ := strings.Cut(same(t, ours, theirs, dryRun(random, list)), "'")
			answers[answer]++
		}
		same(t, ours, theirs, []string{"ACL", "DELUSER", "u"})
	}
	for _, answer := range []string{"OK", "This user has no permissions to run the ",
		"This user has no permissions to access the "} {
		assert.Greater(t, answers[answer], 100, "%q is answered too seldom for this to say much", answer)
	}
}

// dryRun asks about a call with few keys.
func dryRun(random *rand.Rand, list []acl.Command) []string {
	name := list[random.IntN(len(list))].Name
	if random.IntN(2) == 0 {
		name = []string{"get", "set", "mget", "mset", "copy", "rename", "del", "exists", "publish", "subscribe", "psubscribe",
			"ssubscribe", "watch", "object|freq", "memory|usage"}[random.IntN(15)]
	}
	call := append([]string{"ACL", "DRYRUN", "u"}, strings.Split(name, "|")...)
	for range random.IntN(5) {
		call = append(call, []string{"a", "ab", "k1", "b", "1", "GET", "*",
			"a*"}[random.IntN(8)]) // a * is no match for nothing in Redis
	}
	return call
}

// same is what both servers answer to a call.
func same(t *testing.T, ours, theirs *redis.Client, call []string) string {
	words := make([]any, len(call))
	for i, word := range call {
		words[i] = word
	}
	said := func(client *redis.Client) string {
		reply, err := client.Do(context.Background(), words...).Text()
		if err != nil && !strings.Contains(err.Error(), "redis:") {
			return err.Error()
		}
		return reply
	}
	want, got := said(theirs), said(ours)
	if strings.HasPrefix(got, "ERR wrong number") { // some calls have a most here
		return want
	}
	require.Equal(t, want, got, "%q", call)
	return want
}
