package upgrade

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// olderCommand runs an older version, whose program the variable OLDER names, or this version without it:
//
//	make test-older OF=commit
func olderCommand(args ...string) *exec.Cmd {
	if program := os.Getenv("OLDER"); program != "" {
		return exec.Command(program, args...)
	}
	return peer.Command(args...)
}

// older starts an older server, and returns a client of it.
func older(t *testing.T, args ...string) *redis.Client {
	port := peer.FreePort(t)
	server := peer.Launch(t, olderCommand(append(args, "--port", fmt.Sprint(port))...))
	peer.Until(t, "the older server is ready", func() bool {
		return strings.Contains(server.Stdout()+server.Log(), peer.Ready)
	})
	return clientOf(t, fmt.Sprint("127.0.0.1:", port))
}

func clientOf(t *testing.T, addr string) *redis.Client {
	c := peer.Client(&redis.Options{Addr: addr})
	t.Cleanup(func() { c.Close() })
	return c
}

func do(t *testing.T, c *redis.Client, call string) []int64 {
	reply, err := c.Do(t.Context(), words(call)...).Int64Slice()
	require.NoError(t, err, call)
	return reply
}

func words(call string) (list []any) {
	for word := range strings.FieldsSeq(call) {
		list = append(list, word)
	}
	return list
}

// both are calls that allow 20 and that an older server knows, too.
var both = []string{
	"CL.THROTTLE throttle 19 1 36000000 1", "CL.FIXED fixed 20 36000000 1", "CL.SLIDING sliding 20 36000000 1",
	"CL.SLIDINGLOG log 20 36000000 1", "CL.QUOTA quota 20 year 1",
}

// An older server and this one decide together on one store. Each keeps those parts of the other's keys that it
// does not know.
func TestOlderServerOnOneStore(t *testing.T) {
	store := []string{"--store", "redis://" + peer.StartStore(t).Addr}
	old, own := older(t, store...), clientOf(t, peer.Start(t, store...).Addr)
	servers := []*redis.Client{old, own}
	for _, c := range servers {
		peer.Says(t, c.Options().Addr, "store_reached:1", "info", "store")
	}
	for _, call := range both {
		allowed := 0
		for i := range 30 {
			allowed += int(1 - do(t, servers[i%2], call)[0])
		}
		assert.Equal(t, 20, allowed, call)
	}
	holders := 0
	for i := range 10 {
		holders += int(1 - do(t, servers[i%2], fmt.Sprint("CL.ACQUIRE lease 4 36000000 holder-", i))[0])
	}
	assert.Equal(t, 4, holders)
	for i := range 16 {
		assert.EqualValues(t, 90-i/2*10, do(t, servers[i%2], fmt.Sprint("CL.FIXED once 100 36000000 10 ID ", i/2))[2],
			"a token that the other server has recorded")
	}
	do(t, own, "CL.FIXED held 100 36000000 10 HOLD estimate 600s")
	assert.EqualValues(t, 85, do(t, old, "CL.FIXED held 100 36000000 5")[2])
	assert.EqualValues(t, 93, do(t, own, "CL.FIXED held 100 36000000 2 SETTLE estimate")[2])
	assert.EqualValues(t, 93, do(t, old, "CL.FIXED held 100 36000000 0")[2])
}

// The keys of this server go back to an older one by export and import.
func TestOlderServerReadsAnExport(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	server := peer.Start(t)
	own := clientOf(t, server.Addr)
	want := make([]int64, len(both))
	for i, call := range both {
		want[i] = do(t, own, call)[2]
	}
	file := filepath.Join(t.TempDir(), "keys.rdb")
	output, err := peer.Command("export", "-p", fmt.Sprint(server.Port), file).CombinedOutput()
	require.NoError(t, err, "%s", output)
	output, err = olderCommand("import", "--dir", keys, file).CombinedOutput()
	require.NoError(t, err, "%s", output)
	old := older(t, "--dir", keys)
	for i, call := range both {
		assert.Equal(t, want[i]-1, do(t, old, call)[2], call)
	}
}
