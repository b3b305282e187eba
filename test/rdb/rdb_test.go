// Package rdb compares internal/rdb with a real redis-server (7.0.15): redis-server loads files
// that the package writes, and the package reads files and payloads of redis-server.
package rdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"cellserver/internal/rdb"
	"cellserver/test/peer"
)

var ctx = context.Background()

const fileName = "dump.rdb"

// start starts a redis-server with its file in a directory, and returns a client of one of its
// databases.
func start(t *testing.T, dir string, args ...string) func(database int) *redis.Client {
	server := peer.StartRedis(t, append([]string{"--dir", dir, "--dbfilename", fileName}, args...)...)
	return func(database int) *redis.Client {
		client := peer.Client(&redis.Options{
			Addr: server.Addr, DB: database, DisableIdentity: true, Protocol: 2, ReadTimeout: time.Minute,
		})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
}

// held is the content of a key.
type held struct {
	value   string
	expires int64 // Unix milliseconds, or rdb.Never
}

// contents are the keys of each database.
type contents map[int]map[string]held

// examples returns strings of lengths at which the encoding of a string changes, and integers of all sizes.
func examples() contents {
	random := rand.New(rand.NewPCG(1, 2))
	all := contents{0: {}, 1: {}, 15: {}}
	number := 0
	add := func(value string) {
		for database := range all {
			expires := rdb.Never
			if random.IntN(2) == 0 {
				expires = 4_000_000_000_000 + random.Int64N(1e12)
			}
			all[database][fmt.Sprintf("key %d %s", number, value[:min(len(value), number%200)])] = held{value, expires}
		}
		number++
	}
	for _, n := range []int{0, 1, 11, 20, 21, 63, 64, 65, 255, 256, 16383, 16384, 65535, 65536, 65537, 200_000} {
		add(strings.Repeat("a", n))
		noise := make([]byte, n)
		for i := range noise {
			noise[i] = byte(random.Uint32())
		}
		add(string(noise))
	}
	for bit := range 64 {
		for _, n := range []int64{1<<bit - 1, 1 << bit, -1 << bit, -1<<bit - 1} {
			add(strconv.FormatInt(n, 10))
		}
	}
	for range 1000 {
		add(strconv.FormatInt(random.Int64N(1<<random.Int64N(62)+1), 10))
	}
	return all
}

// file writes an RDB file. Strings that have the form of an integer are written as integers.
func (c contents) file(t *testing.T) []byte {
	var file bytes.Buffer
	w := rdb.NewWriter(&file)
	require.NoError(t, w.Field("redis-ver", "7.0.15"))
	require.NoError(t, w.Field("cellserver-ver", "1.2.3"))
	for database, keys := range c {
		require.NoError(t, w.Database(database, uint64(len(keys)), 1))
		for key, h := range keys {
			if n, err := strconv.ParseInt(h.value, 10, 64); err == nil && len(key)%2 == 0 {
				require.NoError(t, w.Integer([]byte(key), n, h.expires))
			} else {
				require.NoError(t, w.Bytes([]byte(key), []byte(h.value), h.expires))
			}
		}
	}
	require.NoError(t, w.Close())
	return file.Bytes()
}

func TestRedisLoadsWhatWeWrite(t *testing.T) {
	all := examples()
	dir := t.TempDir()
	path := filepath.Join(dir, fileName)
	require.NoError(t, os.WriteFile(path, all.file(t), 0o600))
	report, err := exec.Command("redis-check-rdb", path).CombinedOutput()
	require.NoError(t, err, "%s", report)
	require.Contains(t, string(report), "RDB looks OK")

	database := start(t, dir)
	for number, keys := range all {
		client := database(number)
		require.Equal(t, int64(len(keys)), client.DBSize(ctx).Val())
		for key, want := range keys {
			require.Equal(t, want, ask(t, client, key), "%d %q", number, key)
		}
	}
}

// ask returns the content of a key on a server.
func ask(t *testing.T, client *redis.Client, key string) held {
	value, err := client.Get(ctx, key).Result()
	require.NoError(t, err)
	at, err := client.Do(ctx, "PEXPIRETIME", key).Int64()
	require.NoError(t, err)
	if at < 0 {
		at = rdb.Never
	}
	return held{value, at}
}

// value returns the value of a record as text.
func value(rec rdb.Record) string {
	if rec.IsInteger {
		return strconv.FormatInt(rec.Integer, 10)
	}
	return string(rec.Bytes)
}

// read reads a file that Redis has saved. It returns the strings, and the types of all other keys.
func read(t *testing.T, dir string) (values contents, others map[string]string, libraries int, end error) {
	file, err := os.ReadFile(filepath.Join(dir, fileName))
	require.NoError(t, err)
	verified := rdb.Verify(bytes.NewReader(file))
	r := rdb.NewReader(bytes.NewReader(file))
	values, others = contents{}, map[string]string{}
	for {
		rec, err := r.Next()
		if err != nil {
			require.Equal(t, err == io.EOF, verified == nil, "%v", verified)
			require.Equal(t, "7.0.15", r.Field("redis-ver"))
			return values, others, r.Libraries, err
		}
		if rec.Type != rdb.String {
			others[string(rec.Key)] = rec.Type.String()
			continue
		}
		if values[rec.Database] == nil {
			values[rec.Database] = map[string]held{}
		}
		values[rec.Database][string(rec.Key)] = held{value(rec), rec.Expires}
	}
}

func TestWeReadWhatRedisSaves(t *testing.T) {
	for name, args := range map[string][]string{
		"compressed":       {"--maxmemory-policy", "allkeys-lru"},
		"not compressed":   {"--rdbcompression", "no", "--maxmemory-policy", "allkeys-lfu"},
		"without checksum": {"--rdbchecksum", "no"},
		"large encodings": {"--hash-max-listpack-entries", "0", "--zset-max-listpack-entries", "0",
			"--set-max-intset-entries", "0", "--list-max-listpack-size", "1", "--list-compress-depth", "1",
			"--stream-node-max-entries", "1"},
		"small encodings": {"--hash-max-listpack-value", "100000", "--zset-max-listpack-value", "100000",
			"--set-max-intset-entries", "100000", "--list-max-listpack-size", "-5", "--active-expire-effort", "10"},
	} {
		t.Run(name, func(t *testing.T) {
			all := examples()
			dir := t.TempDir()
			database := start(t, dir, args...)
			for number, keys := range all {
				fill(t, database(number), keys)
			}
			want := fillOthers(t, database(0))
			require.NoError(t, database(0).Save(ctx).Err())
			got, others, libraries, end := read(t, dir)
			require.Equal(t, all, got)
			require.Equal(t, want, others)
			require.Equal(t, 1, libraries)
			if name == "without checksum" {
				require.Equal(t, rdb.ErrNoChecksum, end)
			} else {
				require.Equal(t, io.EOF, end)
			}
		})
	}
}

func fill(t *testing.T, client *redis.Client, keys map[string]held) {
	pipe := client.Pipeline()
	for key, h := range keys {
		if h.expires == rdb.Never {
			pipe.Do(ctx, "SET", key, h.value)
		} else {
			pipe.Do(ctx, "SET", key, h.value, "PXAT", h.expires)
		}
	}
	_, err := pipe.Exec(ctx)
	require.NoError(t, err)
}

// manyTypes are commands, one in a line, that create a key of each type in each encoding of
// redis-server. The name of a key is its type and encoding. LONG is too long for the encodings of
// short elements, HUGE is too long for a node of a list, and MANY are too many elements for the
// encodings of few.
const manyTypes = `
RPUSH list-listpack a b 3
RPUSH list-nodes HUGE a HUGE b
RPUSH list-many MANY
SADD set-intset 1 2 3
SADD set-intset-64 1 9223372036854775807
SADD set-table a b LONG
SADD set-table-many MANY
ZADD zset-listpack 1 a 2.5 b -inf c
ZADD zset-skiplist 1 a 2.5 LONG inf c -inf d 1e300 e
HSET hash-listpack f v g 1
HSET hash-table f LONG
XADD stream-one 1-1 f v
XADD stream-fields 1-1 f v g LONG
XADD stream-fields 1-2 f v h HUGE
XADD stream-groups 5-1 f v
XADD stream-groups 5-2 f v
XADD stream-groups 5-3 f v
XGROUP CREATE stream-groups g1 0
XGROUP CREATE stream-groups g2 $
XGROUP CREATECONSUMER stream-groups g1 idle
XREADGROUP GROUP g1 c1 COUNT 2 STREAMS stream-groups >
XREADGROUP GROUP g1 c2 COUNT 2 STREAMS stream-groups >
XACK stream-groups g1 5-1
XDEL stream-groups 5-1
XGROUP CREATE stream-empty g $ MKSTREAM
PEXPIREAT stream-groups 4000000000000
PEXPIREAT set-table 4000000000000
FUNCTION LOAD LIBRARY`

// fillOthers executes manyTypes, and returns the type of each key.
func fillOthers(t *testing.T, client *redis.Client) map[string]string {
	many := make([]any, 0, 5000)
	for i := range cap(many) {
		many = append(many, fmt.Sprint("element ", i))
	}
	words := map[string]any{
		"LONG": strings.Repeat("long", 100), "HUGE": strings.Repeat("huge", 5000),
		"LIBRARY": "#!lua name=lib\nredis.register_function('f', function() return 1 end)",
	}
	for line := range strings.Lines(strings.TrimSpace(manyTypes)) {
		var call []any
		for _, word := range strings.Fields(line) {
			switch longer := words[word]; {
			case word == "MANY":
				call = append(call, many...)
			case longer != nil:
				call = append(call, longer)
			default:
				call = append(call, word)
			}
		}
		err := client.Do(ctx, call...).Err()
		require.True(t, err == nil || errors.Is(err, redis.Nil), "%s: %v", line, err)
	}
	return types(t, client)
}

func types(t *testing.T, client *redis.Client) map[string]string {
	found := map[string]string{}
	keys, err := client.Keys(ctx, "*-*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		if kind := client.Type(ctx, key).Val(); kind != "string" {
			found[key] = kind
		}
	}
	require.Len(t, found, 15)
	return found
}

// Each key has the encoding in its name, unless redis-server is configured otherwise.
func TestEncodings(t *testing.T) {
	client := start(t, t.TempDir())(0)
	fillOthers(t, client)
	for key, want := range map[string]string{
		"list-listpack": "quicklist", "list-nodes": "quicklist", "set-intset": "intset", "set-table": "hashtable",
		"zset-listpack": "listpack", "zset-skiplist": "skiplist", "hash-listpack": "listpack", "hash-table": "hashtable",
		"stream-groups": "stream",
	} {
		require.Equal(t, want, client.ObjectEncoding(ctx, key).Val(), key)
	}
}

// Each of redis-server and package rdb reads the payloads of the other.
func TestPayloads(t *testing.T) {
	client := start(t, t.TempDir())(0)
	all := examples()[1]
	fill(t, client, all)
	for key, want := range all {
		payload, err := client.Dump(ctx, key).Bytes()
		require.NoError(t, err)
		rec, err := rdb.ReadDump(payload)
		require.NoError(t, err, "%q", key)
		require.Equal(t, want.value, value(rec))

		own := rdb.AppendDump(nil, []byte(want.value))
		if n, err := strconv.ParseInt(want.value, 10, 64); err == nil {
			own = rdb.AppendIntegerDump(nil, n)
			require.Equal(t, payload, own, "an integer has one payload")
		}
		require.NoError(t, client.RestoreReplace(ctx, key, 0, string(own)).Err())
		require.Equal(t, want.value, client.Get(ctx, key).Val())
	}
	for key, kind := range fillOthers(t, client) {
		payload, err := client.Dump(ctx, key).Bytes()
		require.NoError(t, err)
		rec, err := rdb.ReadDump(payload)
		require.NoError(t, err, "%q", key)
		require.Equal(t, kind, rec.Type.String())
	}
}
