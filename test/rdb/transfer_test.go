package rdb

import (
	"bytes"
	"fmt"
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

// patience is the longest wait for anything that should happen.
const patience = time.Minute

// subcommand runs a subcommand of cellserver.
func subcommand(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := peer.Command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Start())
	tooLate := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait() // ProcessState has the exit status
	require.True(t, tooLate.Stop(), "%v does not end", args)
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// requireOutput runs a subcommand that must succeed, and returns its output.
func requireOutput(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, status := subcommand(t, args...)
	require.Zero(t, status, "%v: %s%s", args, stdout, stderr)
	return stdout
}

// server is a running server with its address.
type server struct {
	*peer.Server
	t *testing.T
}

func (s server) client(database int, password ...string) *redis.Client {
	client := peer.Client(&redis.Options{
		Addr: s.Addr, DB: database, DisableIdentity: true, Protocol: 2, ReadTimeout: time.Minute,
		Password: strings.Join(password, ""),
	})
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// port returns the options of a subcommand that connects to the server.
func (s server) port() []string {
	_, port, _ := strings.Cut(s.Addr, ":")
	return []string{"-p", port}
}

func (s server) url() string { return "redis://" + s.Addr }

func newRedis(t *testing.T, dir string, args ...string) server {
	return server{peer.StartRedis(t, append([]string{"--dir", dir, "--dbfilename", fileName}, args...)...), t}
}

// newOwn starts a cellserver, with the policy p.
func newOwn(t *testing.T, args ...string) server {
	return server{peer.StartPlain(t, append([]string{"--policies", "testdata/policies.yaml"}, args...)...), t}
}

// requireContents compares all keys of a server, with their expiries.
func requireContents(t *testing.T, s server, want contents) {
	t.Helper()
	for number, keys := range want {
		client := s.client(number)
		require.Equal(t, int64(len(keys)), client.DBSize(ctx).Val())
		for key, h := range keys {
			require.Equal(t, h, ask(t, client, key), "%d %.50q", number, key)
		}
	}
}

// count returns the number of keys.
func (c contents) count() (n int) {
	for _, keys := range c {
		n += len(keys)
	}
	return n
}

func TestImportOfAFileOfRedis(t *testing.T) {
	dir, all := t.TempDir(), examples()
	theirs := newRedis(t, dir)
	for number, keys := range all {
		fill(t, theirs.client(number), keys)
	}
	types := fillOthers(t, theirs.client(0))
	require.NoError(t, theirs.client(0).Save(ctx).Err())
	path := filepath.Join(dir, fileName)

	checked := requireOutput(t, "check", path)
	require.Contains(t, checked, path+" is intact\n")
	ours := newOwn(t)
	imported := requireOutput(t, append([]string{"import", path}, ours.port()...)...)
	for _, out := range []string{checked, imported} {
		require.Contains(t, out, fmt.Sprintf(" %d keys: %d strings, 0 limiters\n", all.count(), all.count()))
		for _, kind := range []string{"list", "set", "zset", "hash", "stream"} {
			n := 0
			for _, other := range types {
				if other == kind {
					n++
				}
			}
			require.Contains(t, out, fmt.Sprintf("left out: %d keys, each a %s: ", n, kind))
		}
		require.Contains(t, out, "left out: 1 libraries of functions\n")
	}
	requireContents(t, ours, all)

	again := requireOutput(t, append([]string{"import", path}, ours.port()...)...)
	require.Contains(t, again, fmt.Sprintf("imported 0 keys: 0 strings, 0 limiters\n%d keys were there already, with the same content\n",
		all.count()))
	require.NoError(t, ours.client(0).Set(ctx, "key 0 ", "changed", 0).Err())
	again = requireOutput(t, append([]string{"import", path}, ours.port()...)...)
	require.Contains(t, again, `left out: 1 keys, which exist already (--replace replaces them): "key 0 "`)
	again = requireOutput(t, append([]string{"import", "--replace", path}, ours.port()...)...)
	require.Contains(t, again, fmt.Sprintf("imported %d keys", all.count()))
	requireContents(t, ours, all)
}

func TestImportFromRedis(t *testing.T) {
	all := examples()
	for _, path := range []string{"", "/1"} {
		theirs, ours := newRedis(t, t.TempDir()), newOwn(t)
		for number, keys := range all {
			fill(t, theirs.client(number), keys)
		}
		types := fillOthers(t, theirs.client(1))
		require.NotEmpty(t, types)
		want := all
		if path != "" {
			want = contents{0: {}, 1: all[1], 15: {}}
		}
		out := requireOutput(t, append([]string{"import", theirs.url() + path}, ours.port()...)...)
		require.Contains(t, out, fmt.Sprintf("imported %d keys: %d strings, 0 limiters\n", want.count(), want.count()))
		require.Contains(t, out, ` keys, each a stream: "stream-`)
		require.Contains(t, out, "left out: 1 libraries of functions\n")
		requireContents(t, ours, want)
	}
}

// A redis-server before 7.0 has no PEXPIRETIME. Passwords may be in the URL or in options.
func TestImportFromOldRedisWithPasswords(t *testing.T) {
	theirs := newRedis(t, t.TempDir(), "--rename-command", "PEXPIRETIME", "", "--requirepass", "secret")
	ours := newOwn(t, "--requirepass", "another")
	from, to := theirs.client(3, "secret"), ours.client(3, "another")
	require.NoError(t, from.Set(ctx, "forever", "a", 0).Err())
	now := from.Time(ctx).Val()
	require.NoError(t, from.Do(ctx, "SET", "hour", "b", "PXAT", now.Add(time.Hour).UnixMilli()).Err())
	tat := now.Add(2 * time.Hour).UnixNano()
	require.NoError(t, from.Do(ctx, "SET", "cell", tat, "PXAT", tat/1e6).Err())
	args := append([]string{"import", "redis://:secret@" + theirs.Addr}, ours.port()...)
	_, stderr, status := subcommand(t, args...)
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "refuses: NOAUTH")
	out := requireOutput(t, append(args, "--pass", "another")...)
	require.Contains(t, out, "imported 3 keys: 2 strings, 1 limiters\n")
	require.Equal(t, held{"a", rdb.Never}, ask(t, to, "forever"))
	hour := ask(t, to, "hour")
	require.Equal(t, "b", hour.value)
	require.InDelta(t, now.Add(time.Hour).UnixMilli(), hour.expires, float64(patience.Milliseconds()))
	require.Equal(t, strconv.FormatInt(tat, 10), to.Get(ctx, "cell").Val())
	require.Equal(t, "cl.throttle", kindOf(to.Do(ctx, "CL.INSPECT", "cell").Val()))

	_, stderr, status = subcommand(t, append([]string{"import", "redis://:wrong@" + theirs.Addr}, args[2:]...)...)
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "refuses: WRONGPASS")
	require.NotContains(t, stderr, "wrong@")
}

// A folder can be copied while its server writes. The copy has the keys of an earlier moment.
func TestCopyOfARunningFolder(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "folder")
	ours := newOwn(t, "--dir", folder)
	client := ours.client(0)
	for n := range 5 {
		for i := range 1000 {
			require.NoError(t, client.Set(ctx, fmt.Sprint("key", i), n, 0).Err())
		}
		copied := filepath.Join(dir, fmt.Sprint("copy", n))
		require.NoError(t, exec.Command("cp", "-r", folder, copied).Run())
		requireOutput(t, "check", copied)
		path := filepath.Join(dir, fmt.Sprint(n, ".rdb"))
		requireOutput(t, "export", "--dir", copied, path)
		require.Contains(t, requireOutput(t, "check", path), path+" is intact\n")
	}
}

// limiterCalls make one key of each kind of limiter.
var limiterCalls = []string{
	"CL.THROTTLE throttle 9 1 3600 5", "CL.FIXED fixed 9 3600 5", "CL.SLIDING sliding 9 3600 5",
	"CL.SLIDINGLOG log 9 3600 5", "CL.QUOTA quota 9 YEAR@Europe/Berlin 5", "CL.ACQUIRE leases 9 3600 me 5",
	"CL.BAN subject p 3600 reason",
}

// standingKey is the key of the standing of the subject in limiterCalls.
const standingKey = "p:{subject}:standing"

// keyOf returns the key that a call of limiterCalls makes.
func keyOf(words []any) string {
	if words[0] == "CL.BAN" {
		return standingKey
	}
	return words[1].(string)
}

// makeLimiters makes the calls of limiterCalls, and returns the payload of each key.
func makeLimiters(t *testing.T, client *redis.Client) map[string]string {
	payloads := map[string]string{}
	for _, call := range limiterCalls {
		words := fields(call)
		require.NoError(t, client.Do(ctx, words...).Err())
		key := keyOf(words)
		payloads[key] = client.Dump(ctx, key).Val()
	}
	return payloads
}

// redis-server loads a file that export has written, with all keys and expiries. import restores
// the same keys from it.
func TestExport(t *testing.T) {
	all := examples()
	ours := newOwn(t)
	for number, keys := range all {
		fill(t, ours.client(number), keys)
	}
	limiters := makeLimiters(t, ours.client(2))
	dir := t.TempDir()
	path := filepath.Join(dir, fileName)
	out := requireOutput(t, append([]string{"export", path}, ours.port()...)...)
	require.Contains(t, out, fmt.Sprintf("exported %d keys: %d strings, 7 limiters\n", all.count()+7, all.count()))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	report, err := exec.Command("redis-check-rdb", path).CombinedOutput()
	require.NoError(t, err, "%s", report)
	require.Contains(t, string(report), "RDB looks OK")

	theirs := newRedis(t, dir)
	requireContents(t, theirs, all)
	tat := ask(t, theirs.client(2), "throttle")
	require.Equal(t, ours.client(2).Get(ctx, "throttle").Val(), tat.value)
	ns, err := strconv.ParseInt(tat.value, 10, 64)
	require.NoError(t, err)
	require.Equal(t, (ns+999_999)/1_000_000, tat.expires)

	for _, source := range []string{path, theirs.url(), ours.url()} {
		to := newOwn(t)
		out := requireOutput(t, append([]string{"import", source}, to.port()...)...)
		require.Contains(t, out, fmt.Sprintf("imported %d keys: %d strings, 7 limiters\n", all.count()+7, all.count()))
		requireContents(t, to, all)
		for key, payload := range limiters {
			require.Equal(t, payload, to.client(2).Dump(ctx, key).Val(), "%s from %s", key, source)
		}
	}
}

// A key in the format of redis-cell becomes a limiter, and so do other integers at keys that match
// --as-throttle.
func TestImportOfRedisCell(t *testing.T) {
	theirs, ours := newRedis(t, t.TempDir()), newOwn(t)
	client := theirs.client(0)
	now := client.Time(ctx).Val()
	for key, after := range map[string]time.Duration{"cell:soon": time.Minute, "cell:late": 300 * 24 * time.Hour} {
		tat := now.Add(after).UnixNano()
		require.NoError(t, client.Do(ctx, "SET", key, tat, "PXAT", tat/1e6-1).Err())
		require.NoError(t, client.Do(ctx, "SET", "old:"+key, tat).Err())
		require.NoError(t, client.Do(ctx, "SET", "counter:"+key, tat, "PXAT", tat/1e6-10_000).Err())
	}
	require.NoError(t, client.Set(ctx, "old:counter", 17, 0).Err())
	require.NoError(t, client.Set(ctx, "old:text", "text", 0).Err())
	out := requireOutput(t, append([]string{"import", "--as-throttle", "old:*", theirs.url()}, ours.port()...)...)
	require.Contains(t, out, "imported 7 keys: 3 strings, 4 limiters\nleft out: 1 keys that have expired\n")
	for key, want := range map[string]string{
		"cell:soon": "cl.throttle", "cell:late": "cl.throttle", "old:cell:soon": "cl.throttle",
		"old:cell:late": "cl.throttle", "counter:cell:soon": "integer", "old:text": "bytes",
	} {
		require.Equal(t, want, kindOf(ours.client(0).Do(ctx, "CL.INSPECT", key).Val()), key)
		require.Equal(t, client.Get(ctx, key).Val(), ours.client(0).Get(ctx, key).Val())
	}
	limited := ours.client(0).Do(ctx, "CL.THROTTLE", "cell:late", 1, 1, 3600).Val()
	require.Equal(t, int64(1), limited.([]any)[0])
}

// export reads a folder, and import writes to one, between two runs of a server with that folder.
func TestFolders(t *testing.T) {
	all, dir := examples(), t.TempDir()
	folder, copied, path := filepath.Join(dir, "folder"), filepath.Join(dir, "copy"), filepath.Join(dir, "keys.rdb")
	ours := newOwn(t, "--dir", folder)
	for number, keys := range all {
		fill(t, ours.client(number), keys)
	}
	limiters := makeLimiters(t, ours.client(2))
	stdout, stderr, status := subcommand(t, "export", "--dir", folder, path)
	require.Equal(t, 1, status, stdout)
	require.Contains(t, stderr, "is in use by")
	require.Contains(t, stderr, "without --dir, this command connects to that server")
	ours.Signal(os.Interrupt)
	require.Zero(t, ours.Wait())

	requireOutput(t, "export", "--dir", folder, path)
	require.Contains(t, requireOutput(t, "check", path),
		fmt.Sprintf("import can copy %d keys: %d strings, 7 limiters\n", all.count()+7, all.count()))
	out := requireOutput(t, "import", "--dir", copied, path)
	require.Contains(t, out, fmt.Sprintf("imported %d keys: %d strings, 7 limiters\n", all.count()+7, all.count()))
	require.Contains(t, requireOutput(t, "import", "--dir", copied, path), " keys were there already, with the same content")
	to := newOwn(t, "--dir", copied)
	require.Eventually(t, func() bool { return to.client(0).DBSize(ctx).Err() == nil }, patience, 10*time.Millisecond)
	requireContents(t, to, all)
	for key, payload := range limiters {
		require.Equal(t, payload, to.client(2).Dump(ctx, key).Val(), key)
	}
}

// A damaged file is refused before anything is written.
func TestDamagedFileIsNotImported(t *testing.T) {
	ours := newOwn(t)
	file := examples().file(t)
	path := filepath.Join(t.TempDir(), fileName)
	for _, damage := range []func([]byte) []byte{
		func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		func(b []byte) []byte { return b[:len(b)-1] },
		func(b []byte) []byte { return append(b, 0) },
	} {
		require.NoError(t, os.WriteFile(path, damage(bytes.Clone(file)), 0o600))
		for _, args := range [][]string{append([]string{"import", path}, ours.port()...), {"check", path}} {
			stdout, stderr, status := subcommand(t, args...)
			require.Equal(t, 1, status)
			require.Empty(t, stdout)
			require.Contains(t, stderr, path+": at byte ")
		}
	}
	require.Zero(t, ours.client(0).DBSize(ctx).Val())
}

// Each failure has a message, and does not change an existing file.
func TestTransfersThatFail(t *testing.T) {
	ours := newOwn(t, "--databases", "2")
	path := filepath.Join(t.TempDir(), fileName)
	require.NoError(t, os.WriteFile(path, examples().file(t), 0o600))
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"export", path}, path + " exists; --replace replaces it"},
		{[]string{"import", "-p", "1", path}, "cannot connect to 127.0.0.1:1"},
		{[]string{"import", path + ".not"}, "no such file"},
		{[]string{"import", "http://127.0.0.1"}, "http:// is not supported"},
		{[]string{"import", "redis://:secret@127.0.0.1:1"}, "cannot connect to 127.0.0.1:1: connection refused\n"},
		{[]string{"import"}, "needs one file or URL; see cellserver import --help"},
		{[]string{"import", "--databases", "0", path}, "--databases 0: must be between 1 and 1024"},
		{[]string{"export", "--dir", path + ".not", path + ".new"}, "no such file"},
		{[]string{"check", "--fix", path}, "cannot be repaired"},
	} {
		stdout, stderr, status := subcommand(t, c.args...)
		require.Equal(t, 1, status, "%s%s", stdout, stderr)
		require.Contains(t, stderr, c.says)
		require.NotContains(t, stderr, "secret")
	}
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1)

	out := requireOutput(t, append([]string{"import", path}, ours.port()...)...)
	require.Contains(t, out, "keys, of database 15 (ERR DB index is out of range): ")
	require.NoError(t, ours.client(0).ConfigSet(ctx, "maxmemory", "1").Err())
	client := ours.client(0)
	require.Eventually(t, func() bool { return client.Set(ctx, "k", "v", 0).Err() != nil }, patience, time.Millisecond)
	stdout, stderr, status := subcommand(t, append([]string{"import", "--replace", path}, ours.port()...)...)
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "refuses: OOM command not allowed")
	require.Contains(t, stdout, "imported 0 keys")
}
