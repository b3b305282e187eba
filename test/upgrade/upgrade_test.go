// Package upgrade opens with this version what released versions have left behind: a folder of --dir, the keys in a
// store, a configuration and policies. make.sh makes the fixture of a version.
package upgrade

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/journal"
	"cellserver/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// versions returns the folders of the fixtures.
func versions(t *testing.T) []string {
	folders, err := filepath.Glob("testdata/*")
	require.NoError(t, err)
	require.NotEmpty(t, folders, "test/upgrade/make.sh makes them")
	return folders
}

// version returns which version has written the newest file of a fixture's folder.
func version(t *testing.T, fixture string) string {
	files, err := filepath.Glob(filepath.Join(fixture, "keys", "journal-*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	file, err := os.Open(files[len(files)-1])
	require.NoError(t, err)
	defer file.Close()
	h, _, _, err := journal.ReadHeader(file, 200)
	require.NoError(t, err)
	return strings.TrimPrefix(h.Program, "v")
}

// Every release has a fixture of its own, which its program has made: test/upgrade/make.sh makes it after the tag. A
// fixture before the first release has the name of that release and a number, such as 1.0.0-2. The commit of a tag
// cannot have its fixture yet. In a clone without tags, as CI's may be, only the names are compared.
func TestReleasesHaveFixtures(t *testing.T) {
	made := map[string]bool{}
	for _, fixture := range versions(t) {
		name := filepath.Base(fixture)
		made[name] = true
		if !strings.Contains(name, "-") {
			assert.Equal(t, name, version(t, fixture))
		}
	}
	tags, err := exec.Command("git", "tag", "--list", "v*", "--no-contains", "HEAD").Output()
	if err != nil {
		t.Log("this is no clone: ", err)
	}
	for tag := range strings.FieldsSeq(string(tags)) {
		assert.True(t, made[strings.TrimPrefix(tag, "v")], "run test/upgrade/make.sh %s", strings.TrimPrefix(tag, "v"))
	}
}

// steady returns the part of a reply that does not depend on the time, as `cellserver cli` prints it: of a limiter
// whether the call is limited, the limit and what remains; of holders their names.
func steady(call, reply string) string {
	lines := strings.Split(strings.TrimSuffix(reply, "\n"), "\n")
	switch {
	case strings.HasPrefix(call, "CL.QUOTA"): // its year may have ended
		return lines[1]
	case strings.HasSuffix(call, " PEEK") && len(lines) == 5:
		return strings.Join(lines[:3], " ")
	case strings.HasPrefix(call, "CL.HOLDERS"):
		return lines[0]
	}
	return reply
}

// expected returns the calls of a file that make.sh has written, and the steady parts of their replies.
func expected(t *testing.T, file string) (calls []string, replies map[string]string) {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	replies = map[string]string{}
	for _, part := range strings.Split("\n"+string(text), "\n> ")[1:] {
		call, reply, _ := strings.Cut(part, "\n")
		calls = append(calls, call)
		replies[call] = steady(call, reply)
	}
	require.Greater(t, len(calls), 10, file)
	return calls, replies
}

// ask makes a call as make.sh does, and returns the steady part of its reply.
func ask(t *testing.T, server *peer.Server, call string) string {
	cmd := peer.Command("cli", "-p", strconv.Itoa(server.Port))
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0") // it would sleep for a second
	cmd.Stdin = strings.NewReader(call)
	reply, err := cmd.Output()
	require.NoError(t, err, "%s: %s", call, reply)
	return steady(call, strings.TrimSuffix(string(reply), "\n"))
}

// same checks that a server answers as the old one did.
func same(t *testing.T, server *peer.Server, file string) {
	calls, replies := expected(t, file)
	for _, call := range calls {
		assert.Equal(t, strings.TrimSuffix(replies[call], "\n"), ask(t, server, call), call)
	}
}

// changes are calls that write in this version's form, each with a later read and what that read must say.
var changes = []struct{ call, read, want string }{
	{"INCR counter", "GET counter", "43"},
	{"CL.THROTTLE throttle 3 1 946080000 1", "CL.THROTTLE throttle 3 1 946080000 1 PEEK", "0 4 0"},
	{"CL.FIXED fixed 10 946080000 2", "CL.FIXED fixed 10 946080000 1 PEEK", "0 10 4"},
	{"CL.SLIDING sliding 10 946080000 2", "CL.SLIDING sliding 10 946080000 1 PEEK", "0 10 3"},
	{"CL.SLIDINGLOG log 10 946080000 3", "CL.SLIDINGLOG log 10 946080000 1 PEEK", "0 10 4"},
	{"CL.TAKE alice api 2", "CL.TAKE alice api 1 PEEK", "0 15 9"},
	{"CL.PARDON mallory api", "CL.TAKE mallory api 1 PEEK", "0 10 9"},
	{"CL.TAKE bob plans 100", "CL.TAKE bob plans 1 PEEK", "0 1000 499"},
}

func change(t *testing.T, server *peer.Server) {
	for _, c := range changes {
		ask(t, server, c.call)
	}
	changed(t, server)
}

func changed(t *testing.T, server *peer.Server) {
	for _, c := range changes {
		assert.Equal(t, c.want, ask(t, server, c.read), c.read)
	}
}

// copied copies a file or a folder into a directory of the test, because the server writes to it.
func copied(t *testing.T, from string) string {
	to := filepath.Join(t.TempDir(), filepath.Base(from))
	about, err := os.Stat(from)
	require.NoError(t, err)
	if about.IsDir() {
		require.NoError(t, os.CopyFS(to, os.DirFS(from)))
		return to
	}
	text, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, text, 0o600))
	return to
}

// The folder, the configuration and the policies of each version are read, and written again.
func TestFolders(t *testing.T) {
	for _, version := range versions(t) {
		t.Run(filepath.Base(version), func(t *testing.T) {
			folder, config := copied(t, filepath.Join(version, "keys")), copied(t, filepath.Join(version, "cellserver.conf"))
			args := []string{"--config", config, "--policies", filepath.Join(version, "policies.yaml"), "--dir", folder}
			server := peer.StartPlain(t, args...)
			same(t, server, filepath.Join(version, "dir.txt"))
			change(t, server)
			assert.Equal(t, "OK", ask(t, server, "CONFIG REWRITE"))
			assert.Equal(t, "500", strings.TrimPrefix(ask(t, server, "CONFIG GET maxclients"), "maxclients\n"))
			require.NoError(t, peer.Command("check", folder).Run(), "while the server runs, it only reads")
			server.Stop()
			server = peer.StartPlain(t, args...)
			changed(t, server)
			ask(t, server, "BGREWRITEAOF")
			peer.Says(t, server.Addr, "aof_rewrite_in_progress:0", "INFO", "persistence")
			server.Stop()
			changed(t, peer.StartPlain(t, args...))
		})
	}
}

// The keys that each version has written to a store are read, and written again.
func TestStores(t *testing.T) {
	for _, version := range versions(t) {
		t.Run(filepath.Base(version), func(t *testing.T) {
			store := peer.StartRedis(t, "--dir", filepath.Dir(copied(t, filepath.Join(version, "store.rdb"))), "--dbfilename",
				"store.rdb")
			args := []string{"--config", copied(t, filepath.Join(version, "cellserver.conf")), "--policies",
				filepath.Join(version, "policies.yaml"), "--store", "redis://" + store.Addr,
				"--store-timeout", "30000"}
			start := func() *peer.Server {
				server := peer.StartPlain(t, args...)
				peer.Says(t, server.Addr, "store_reached:1", "INFO", "store")
				return server
			}
			server := start()
			same(t, server, filepath.Join(version, "store.txt"))
			change(t, server)
			server.Stop()
			changed(t, start())
		})
	}
}

// What a newer version has written is refused by name, and stays as it is.
func TestNewerFormatsAreRefused(t *testing.T) {
	for _, version := range versions(t) {
		folder := copied(t, filepath.Join(version, "keys"))
		files, err := filepath.Glob(filepath.Join(folder, "journal-*"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		newest := files[len(files)-1]
		b, err := os.ReadFile(newest)
		require.NoError(t, err)
		copy(b[len("cljrnl"):], "9")
		copy(b[12:32], "v9.8.7\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
		header := binary.BigEndian.Uint32(b[8:])
		binary.BigEndian.PutUint32(b[header-4:], crc32.Checksum(b[:header-4], crc32.MakeTable(crc32.Castagnoli)))
		require.NoError(t, os.WriteFile(newest, b, 0o600))
		for _, args := range [][]string{{"--port", "0", "--dir", folder}, {"check", folder}, {"check", "--fix", folder}} {
			out, err := peer.Command(args...).CombinedOutput()
			assert.Error(t, err, args)
			assert.Contains(t, string(out), filepath.Base(newest), args)
			assert.Contains(t, string(out), "9.8.7", args)
		}
		after, err := os.ReadFile(newest)
		require.NoError(t, err)
		assert.Equal(t, b, after)
	}
	store := peer.StartRedis(t)
	server := peer.StartPlain(t, "--store", "redis://"+store.Addr, "--store-timeout", "30000")
	peer.Says(t, server.Addr, "store_reached:1", "INFO", "store")
	peer.Ask(t, store.Addr, "SET", "k", "\x00cl9 of a newer version")
	out, err := peer.Command("cli", "-p", strconv.Itoa(server.Port), "CL.FIXED", "k", "10", "60").Output()
	assert.Error(t, err)
	assert.Contains(t, string(out), "newer version")
}
