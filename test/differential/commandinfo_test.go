package differential

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// These tests compare COMMAND INFO and COMMAND DOCS, for the commands that both servers have.

// infoFields are the elements of COMMAND INFO.
var infoFields = []string{"name", "arity", "flags", "first key", "last key", "step", "categories", "tips", "key specs"}

// describedBy returns a server's description of each command, by name and field.
func describedBy(t *testing.T, open dialer) map[string]map[string]string {
	client := peer.Client(&redis.Options{Protocol: 2,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return open() }})
	defer client.Close()
	ctx, all := context.Background(), map[string]map[string]string{}
	names, err := client.Do(ctx, "COMMAND", "LIST").StringSlice()
	require.NoError(t, err)
	for _, name := range names {
		info, err := client.Do(ctx, "COMMAND", "INFO", name).Slice()
		require.NoError(t, err)
		docs, err := client.Do(ctx, "COMMAND", "DOCS", name).Slice()
		require.NoError(t, err)
		fields := map[string]string{}
		for i, field := range infoFields {
			fields[field] = sorted(info[0].([]any)[i])
		}
		said := docs[1].([]any)
		for i := 0; i < len(said); i += 2 {
			fields[said[i].(string)] = fmt.Sprint(said[i+1])
		}
		if arguments := pairs(docs[1])["arguments"]; arguments != nil {
			fields["arguments"] = argumentsOf(arguments.([]any))
		}
		for _, words := range []string{"summary", "complexity", "subcommands", "history"} {
			delete(fields, words)
		}
		all[name] = fields
	}
	return all
}

// sorted formats a field. The names of a set are sorted, because their order has no meaning.
func sorted(field any) string {
	list, is := field.([]any)
	if !is {
		return fmt.Sprint(field)
	}
	var words []string
	for _, word := range list {
		words = append(words, fmt.Sprint(word))
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func pairs(list any) map[string]any {
	all, p := list.([]any), map[string]any{}
	for i := 0; i < len(all); i += 2 {
		p[all[i].(string)] = all[i+1]
	}
	return p
}

// argumentsOf returns the comparable parts of arguments: names, types, flags and tokens.
func argumentsOf(list []any) string {
	var all []string
	for _, one := range list {
		a := pairs(one)
		text := fmt.Sprint(a["name"], " ", a["type"])
		for _, more := range []string{"flags", "token"} {
			if a[more] != nil {
				text += fmt.Sprint(" ", a[more])
			}
		}
		if parts, has := a["arguments"]; has {
			text += " (" + argumentsOf(parts.([]any)) + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// differing returns the commands and fields that two servers describe differently.
func differing(ours, theirs map[string]map[string]string) map[string]string {
	found := map[string]string{}
	for name, fields := range ours {
		other, both := theirs[name]
		if refused := strings.HasPrefix(name, "cluster|"); !both || refused { // refused subcommands have no description
			continue
		}
		for _, field := range slices.Concat(slices.Collect(maps.Keys(fields)), slices.Collect(maps.Keys(other))) {
			if fields[field] != other[field] {
				found[name+": "+field] = fmt.Sprintf("cellserver %s\nredis-server %s", fields[field], other[field])
			}
		}
	}
	return found
}

// allowedInfo lists the differences that are allowed, with reasons.
var allowedInfo = map[string][]string{
	"nothing is loaded from elsewhere while clients are served": {"bgrewriteaof: flags", "bgsave: flags", "save: flags"},
	"there is one group for all that scripts and functions have here": {
		"function: group", "function|flush: group", "function|help: group", "script: group", "script|flush: group",
		"script|help: group",
	},
	"here nothing is deprecated": {
		"getset: deprecated_since", "getset: doc_flags", "getset: replaced_by", "substr: deprecated_since",
		"substr: doc_flags", "substr: replaced_by",
	},
	"Redis's DEBUG is for its makers alone": {"debug: doc_flags"},
	"Redis adds a note in words":            {"getex: key specs", "set: key specs"},
	"options, and words in a way of their own, stand as they are read": ofEach("arguments", `acl|genpass acl|log auth client|caching client|kill client|list
		client|no-evict client|pause client|reply client|tracking client|unblock cluster command|getkeys command|getkeysandflags command|list
		config|get config|set copy debug expire expireat flushall flushdb function|flush getex hello incrbyfloat keys lolwut move pexpire
		pexpireat psetex psubscribe pubsub|channels pubsub|shardchannels punsubscribe restore scan script|flush set setex shutdown swapdb`),
}

func ofEach(field, names string) (all []string) {
	for _, name := range strings.Fields(names) {
		all = append(all, name+": "+field)
	}
	return all
}

// COMMAND INFO and DOCS describe each command as Redis does, except for the allowed differences,
// all of which exist.
func TestCommandsAreDescribedAsInRedis(t *testing.T) {
	found := differing(describedBy(t, to(peer.Start(t))), describedBy(t, to(peer.StartRedis(t))))
	for reason, list := range allowedInfo {
		for _, one := range list {
			assert.Contains(t, found, one, "differs no longer (%s)", reason)
			delete(found, one)
		}
	}
	for what, difference := range found {
		t.Errorf("%s\n%s", what, difference)
	}
}

// One flag of one command that is spelled differently is found, and nothing else is reported.
func TestPlantedDescriptionIsFound(t *testing.T) {
	open := to(peer.StartRedis(t))
	wrong := func() (net.Conn, error) {
		conn, err := open()
		return &tampering{conn, "+skip_slowlog", "+skip_slowest"}, err
	}
	found := differing(describedBy(t, wrong), describedBy(t, open))
	require.NotEmpty(t, found)
	for what := range found {
		assert.Contains(t, what, ": flags")
	}
}
