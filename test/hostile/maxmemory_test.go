package hostile

import (
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// At maxmemory, new keys are refused, whether small or large. Calls that need no memory continue to
// work, and when keys have been removed there is memory again.
func TestMaxMemory(t *testing.T) {
	const most = 16 << 20
	w := watch(t, peer.Start(t, "--maxmemory", "16mb"))
	for name, fill := range map[string]func(p redis.Pipeliner, key string){
		"keys":   func(p redis.Pipeliner, key string) { p.Do(w.ctx, "CL.THROTTLE", key, 15, 1, 100000) },
		"values": func(p redis.Pipeliner, key string) { p.Set(w.ctx, key, strings.Repeat("x", 1000), 0) },
	} {
		refused := func(round int) error {
			_, err := w.Pipelined(w.ctx, func(p redis.Pipeliner) error {
				for n := range 1000 {
					fill(p, fmt.Sprintf("key:%d:%d", round, n))
				}
				return nil
			})
			return err
		}
		require.NoError(t, w.Do(w.ctx, "CL.FIXED", "known", 5, 3600).Err())
		round := 0
		for err := error(nil); err == nil; round++ {
			require.Less(t, round*1000*13, most, "%s: memory has no bound", name)
			if err = refused(round); err != nil {
				require.EqualError(t, err, "OOM command not allowed when used memory > 'maxmemory'.", name)
			}
		}
		used := w.number("used_memory")
		t.Logf("%s: refused in round %d, with %d MiB used", name, round, used>>20)
		assert.Less(t, used, 8*most, "%s: the server measures its memory only ten times a second", name)
		w.limitersContinue(t)
		require.NoError(t, w.Exists(w.ctx, "key:0:0").Err())
		require.NoError(t, w.Del(w.ctx, "key:0:0").Err())
		require.NoError(t, w.FlushAll(w.ctx).Err())
		until(t, func() bool { return w.Set(w.ctx, "key", "value", 0).Err() == nil },
			func() string { return "there is room again: " + name })
	}
}

// limitersContinue calls limiters while memory is full, with an existing key and with a new one.
func (w *watcher) limitersContinue(t *testing.T) {
	ask := func(words ...any) string {
		reply, err := w.Do(w.ctx, words...).Result()
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(reply)
	}
	bound := w.ConfigGet(w.ctx, "maxmemory").Val()["maxmemory"]
	require.NoError(t, w.ConfigSet(w.ctx, "maxmemory",
		"1mb").Err()) // a lower bound, because a collection of garbage may have freed memory
	require.Regexp(t, `^\[0 5 3 -1 `, ask("CL.FIXED", "known", 5, 3600))
	require.Equal(t, "[0 5 4 -1 3600]", ask("CL.FIXED", "unknown", 5, 3600, 1, "PEEK"))
	require.Regexp(t, "^OOM ", ask("CL.FIXED", "unknown", 5, 3600))
	require.NoError(t, w.ConfigSet(w.ctx, "oom-decision", "limit").Err())
	require.Equal(t, "[1 5 0 1 0]", ask("CL.FIXED", "unknown", 5, 3600))
	require.NoError(t, w.ConfigSet(w.ctx, "oom-decision", "error").Err())
	require.NoError(t, w.ConfigSet(w.ctx, "maxmemory", bound).Err())
}

// Short payloads that decompress to long values are refused in time: the decompressed size counts
// before it is allocated, for all clients together. So however fast payloads come, the server keeps no
// more than fit in maxmemory.
func TestCompressedPayloadsWithinMaxMemory(t *testing.T) {
	const clients, payloads, mebibytes = 20, 20, 64
	server := peer.Start(t, "--maxmemory", fmt.Sprintf("%dmb", mebibytes))
	w := watch(t, server)
	var group sync.WaitGroup
	var refused atomic.Int32
	for n := range clients {
		group.Go(func() {
			c := peer.Client(&redis.Options{Addr: server.Addr, TLSConfig: server.TLS, PoolSize: 1, MaxRetries: -1})
			defer c.Close()
			_, err := c.Pipelined(w.ctx, func(p redis.Pipeliner) error {
				for i := range payloads {
					p.Restore(w.ctx, fmt.Sprintf("key:%d:%d", n, i), 0, compressedMebibyte())
				}
				return nil
			})
			if err != nil && strings.HasPrefix(err.Error(), "OOM ") {
				refused.Add(1)
				return
			}
			assert.NoError(t, err)
		})
	}
	group.Wait()
	assert.Positive(t, refused.Load())
	assert.LessOrEqual(t, w.DBSize(w.ctx).Val(), int64(mebibytes))
	require.NoError(t, w.FlushAll(w.ctx).Err())
	until(t, func() bool { return w.Set(w.ctx, "key", "value", 0).Err() == nil },
		func() string { return "there is room again" })
}

// compressedMebibyte returns a payload of RESTORE of 12 KB, for a value of about a mebibyte: three bytes
// for each 264.
func compressedMebibyte() string {
	const repeats, each = 3970, 264
	packed := "\x00v" + strings.Repeat("\xe0\xff\x00", repeats)
	body := binary.BigEndian.AppendUint32([]byte{0, 0xc3, 0x80}, uint32(len(packed)))
	body = binary.BigEndian.AppendUint32(append(body, 0x80), 1+repeats*each)
	body = binary.LittleEndian.AppendUint16(append(body, packed...), 10)
	table := crc64.MakeTable(0x95ac9329ac4bc9b5)
	return string(binary.LittleEndian.AppendUint64(body, ^crc64.Update(^uint64(0), table, body)))
}
