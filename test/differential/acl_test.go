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

// commandsOf returns the commands of a server, for rules about them.
func commandsOf(t *testing.T, client *redis.Client) (list []acl.Command) {
	rows, err := client.Do(context.Background(), "COMMAND").Slice()
	require.NoError(t, err)
	var add func(rows []any, parent int)
	add = func(rows []any, parent int) {
		for _, row := range rows {
			fields := row.([]any)
			command := acl.Command{Name: fields[0].(string), Parent: parent}
			for _, category := range fields[6].([]any) {
				command.Categories = append(command.Categories, strings.TrimPrefix(category.(string), "@"))
			}
			list = append(list, command)
			add(fields[9].([]any), len(list)-1)
		}
	}
	add(rows, -1)
	return list
}

// rules returns random rules. Most are valid. With many commands, two rules are rarely
// about the same command.
func rules(random *rand.Rand, list []acl.Command) (words []string) {
	pick := func(words ...string) string { return words[random.IntN(len(words))] }
	name := func() string {
		for {
			// DEBUG has subcommands here, and other subcommands in Redis.
			if n := list[random.IntN(len(list))].Name; n != "debug" {
				return n
			}
		}
	}
	pattern := func() string { return pick("*", "a", "a*", "k?", "[ab]", "ab", "") }
	selected := func() string {
		switch random.IntN(9) {
		case 0:
			return pick("allkeys", "~*", "resetkeys", "allchannels", "&*", "resetchannels", "RESETKEYS")
		case 1:
			return pick("+@all", "-@all", "allcommands", "nocommands", "-@all")
		case 2, 3:
			return pick("+", "-") + "@" + pick(acl.Categories()[:8]...)
		case 4:
			return pick("+", "-") + "@" +
				pick("pubsub", "admin", "FAST", "slow", "dangerous", "connection", "transaction", "scripting", "nosuch")
		case 5, 6:
			return pick("+", "+", "-") +
				pick(name(), strings.ToUpper(name()), name()+"|x", "config|get", "select|1", "select|2", "nosuch")
		case 7:
			return pick("~", "~", "%R~", "%W~", "%RW~", "%r~", "%RR~", "%R") + pattern()
		}
		return "&" + pattern()
	}
	for range 1 + random.IntN(9) {
		switch random.IntN(12) {
		case 0:
			words = append(words, pick("on", "off", "ON", "nopass", "resetpass", "sanitize-payload", "skip-sanitize-payload",
				"clearselectors", "reset", ""))
		case 1:
			words = append(words, pick(">", ">", "<")+pick("a", "b", "c d"),
				pick("#", "!")+strings.Repeat(pick("0", "a", "f", "g"), random.IntN(2)+63))
		case 2:
			words = append(words, "("+selected()+" "+selected()+pick(")", " )", ")", ""))
		case 3:
			words = append(words, "(", selected(), selected(), ")")
		default:
			words = append(words, selected())
		}
	}
	return words
}

// Random rules about Redis's commands give the same users, or the same errors, here and in a
// redis-server. The test compares ACL GETUSER, ACL LIST and the replies of ACL SETUSER.
func TestRulesAreRedis(t *testing.T) {
	server := peer.StartRedis(t)
	client := peer.Client(&redis.Options{Addr: server.Addr, Protocol: 3})
	defer client.Close()
	ctx := context.Background()
	list := commandsOf(t, client)
	commands := acl.NewCommands(list)
	accepted := 0
	for seed := range uint64(1500) {
		random := rand.New(rand.NewPCG(seed, 3))
		channels := random.IntN(4) == 0
		require.NoError(t, client.ConfigSet(ctx, "acl-pubsub-default",
			map[bool]string{true: "allchannels", false: "resetchannels"}[channels]).Err())
		u := commands.New("u", channels)
		client.Do(ctx, "ACL", "DELUSER", "u")
		for range 3 {
			said := rules(random, list)
			changed, wrong := u.With(said, channels)
			call := []any{"ACL", "SETUSER", "u"}
			for _, word := range said {
				call = append(call, word)
			}
			err := client.Do(ctx, call...).Err()
			if err != nil {
				require.Error(t, wrong, "%q", said)
				require.Equal(t, err.Error(), "ERR "+wrong.Error(), "%q", said)
				continue
			}
			require.NoError(t, wrong, "%q", said)
			accepted++
			u = changed
			theirs, ours := describedUser(t, client, u)
			require.Equal(t, theirs, ours, "%q", said)
		}
	}
	assert.Greater(t, accepted, 1000, "too few of the random rules were valid")
}

// describedUser returns a server's and our description of a user, for comparison.
func describedUser(t *testing.T, client *redis.Client, u *acl.User) (theirs, ours [][]string) {
	reply, err := client.Do(context.Background(), "ACL", "GETUSER", "u").Result()
	require.NoError(t, err)
	line := ""
	lines, err := client.Do(context.Background(), "ACL", "LIST").StringSlice()
	require.NoError(t, err)
	for _, l := range lines {
		if strings.HasPrefix(l, "user u ") {
			line = l
		}
	}
	d := u.Describe()
	var selectors []string
	for _, s := range d.Selectors {
		selectors = append(selectors,
			fmt.Sprint(map[string]string{"commands": s.Commands, "keys": s.Keys, "channels": s.Channels}))
	}
	described := fmt.Sprint(map[string]any{
		"flags": d.Flags, "passwords": d.Passwords, "commands": d.Commands, "keys": d.Keys, "channels": d.Channels,
		"selectors": selectors,
	})
	return [][]string{unordered(line), unordered(fmt.Sprint(reply))},
		[][]string{unordered(u.String()), unordered(described)}
}

// A user that differs from the server's is found.
func TestRulesThatDifferAreFound(t *testing.T) {
	server := peer.StartRedis(t)
	client := peer.Client(&redis.Options{Addr: server.Addr, Protocol: 3})
	defer client.Close()
	u := acl.NewCommands(commandsOf(t, client)).New("u", false)
	require.NoError(t, client.Do(context.Background(), "ACL", "SETUSER", "u").Err())
	theirs, ours := describedUser(t, client, u)
	require.Equal(t, theirs, ours)
	for _, rule := range []string{"on", "nopass", ">x", "~x", "%R~x", "&x", "+get", "+@read", "+config|get", "+select|1",
		"()"} {
		other, err := u.With([]string{rule}, false)
		require.NoError(t, err)
		theirs, ours := describedUser(t, client, other)
		assert.NotEqual(t, theirs, ours, rule)
	}
}

// unordered sorts the words of a line, because redis-servers order the rules of single subcommands
// differently.
func unordered(line string) []string {
	words := strings.Fields(strings.NewReplacer("(", " ( ", ")", " ) ", "]", " ] ", "[", " [ ").Replace(line))
	slices.Sort(words)
	return words
}
