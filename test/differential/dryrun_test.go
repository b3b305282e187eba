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

// shared returns the commands that both servers have, without commands whose arguments they parse
// differently.
func shared(t *testing.T, ours, theirs *redis.Client) (list []acl.Command) {
	known := make(map[string]acl.Command)
	for _, command := range commandsOf(t, ours) {
		known[command.Name] = command
	}
	for _, command := range commandsOf(t, theirs) {
		mine, ok := known[command.Name]
		if !ok || command.Name == "cluster" { // in Redis it has subcommands
			continue
		}
		list = append(list, command)
		slices.Sort(command.Categories)
		slices.Sort(mine.Categories)
		assert.Equal(t, fmt.Sprint(command.Categories), fmt.Sprint(mine.Categories), command.Name)
	}
	return list
}

// With random rules, ACL DRYRUN allows users the same random calls here and in a redis-server. A
// command that both have is in the same categories.
func TestDryRunsAreRedis(t *testing.T) {
	a, b := peer.Start(t), peer.StartRedis(t)
	ours := peer.Client(&redis.Options{Addr: a.Addr, TLSConfig: a.TLS, Protocol: 2})
	theirs := peer.Client(&redis.Options{Addr: b.Addr, Protocol: 2})
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
			same(t, ours, theirs, append([]string{"ACL", "SETUSER", "u"}, rules(random, list)...)) // the rules may be invalid
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

// dryRun returns a call of ACL DRYRUN with few different keys.
func dryRun(random *rand.Rand, list []acl.Command) []string {
	name := list[random.IntN(len(list))].Name
	if random.IntN(2) == 0 {
		name = []string{"get", "set", "mget", "mset", "copy", "rename", "del", "exists", "publish", "subscribe", "psubscribe",
			"ssubscribe", "watch", "object|freq", "memory|usage"}[random.IntN(15)]
	}
	call := append([]string{"ACL", "DRYRUN", "u"}, strings.Split(name, "|")...)
	for range random.IntN(5) {
		call = append(call, []string{"a", "ab", "k1", "b", "1", "GET", "*",
			"a*"}[random.IntN(8)]) // in Redis, ** does not match the empty key
	}
	return call
}

// same compares both servers' replies to a call, and returns the reply.
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
	if strings.HasPrefix(got, "ERR wrong number") { // some commands have a maximum of arguments here
		return want
	}
	require.Equal(t, want, got, "%q", call)
	return want
}
