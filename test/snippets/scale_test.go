package snippets

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/store/remote/backend"
	"cellserver/test/peer"
)

// storeCommands returns the commands in docs/scale.md that start cellserver with a store, without
// their first word.
func storeCommands(t *testing.T) (all [][]string) {
	for line := range strings.Lines(read(t, "docs/scale.md")) {
		if options, found := strings.CutPrefix(line, "    cellserver --store "); found {
			all = append(all, strings.Fields("--store "+options))
		}
	}
	require.GreaterOrEqual(t, len(all), 3)
	return all
}

// --store accepts every URL in docs/scale.md, and every command there that starts cellserver has
// options that exist.
func TestStoreURLsAreAccepted(t *testing.T) {
	urls := regexp.MustCompile("\\b(rediss?(\\+sentinel|\\+cluster)?|unix)://[^\\s`]+").FindAllString(read(t, "docs/scale.md"), -1)
	assert.GreaterOrEqual(t, len(urls), 8)
	for _, url := range urls {
		_, err := backend.ParseAddress(url)
		assert.NoError(t, err, url)
	}
	for _, words := range storeCommands(t) {
		out, err := peer.Command(append(words, "--version")...).CombinedOutput()
		assert.NoError(t, err, "%s: %s", words, out)
	}
}

// commandFor returns the command in docs/scale.md whose URL begins with a scheme, with the URL's
// hosts replaced, and with a password file that exists.
func commandFor(t *testing.T, scheme, hosts string) []string {
	passwordFile := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(passwordFile, []byte("secret\n"), 0o600))
	for _, words := range storeCommands(t) {
		url, found := strings.CutPrefix(words[1], scheme+"://limits@")
		if !found {
			continue
		}
		_, path, hasPath := strings.Cut(url, "/")
		words[1] = scheme + "://limits@" + hosts
		if hasPath {
			words[1] += "/" + path
		}
		for i, word := range words {
			if word == "--store-password-file" {
				words[i+1] = passwordFile
			}
		}
		return append(words, "--store-timeout", "30000")
	}
	require.Fail(t, "docs/scale.md has no command with this URL", scheme)
	return nil
}

// On a server that Sentinels watch, and on a cluster, the user of docs/scale.md can be created, and
// the document's commands start cellservers with that store.
func TestStoreCommandsRun(t *testing.T) {
	t.Run("sentinel", func(t *testing.T) {
		s := peer.StartSentinels(t, peer.StartRedis, nil)
		makeUser(t, s.Primary.Addr)
		args := commandFor(t, "redis+sentinel", strings.Join(s.Addrs, ","))
		args[1] = strings.Replace(args[1], "/mymaster", "/"+s.Name, 1)
		shareALimit(t, args)
	})
	t.Run("cluster", func(t *testing.T) {
		c := peer.StartCluster(t, peer.StartRedis, 2, false, nil)
		for _, primary := range c.Primaries {
			makeUser(t, primary.Addr)
		}
		shareALimit(t, commandFor(t, "redis+cluster", strings.Join(c.Addrs, ",")))
	})
}

// makeUser sends the ACL SETUSER of docs/scale.md to a server.
func makeUser(t *testing.T, addr string) {
	_, rule, found := strings.Cut(read(t, "docs/scale.md"), "ACL SETUSER limits ")
	require.True(t, found)
	rule, _, _ = strings.Cut(rule, "\n")
	words := []any{"ACL", "SETUSER", "limits"}
	for word := range strings.FieldsSeq(strings.Replace(rule, ">password", ">secret", 1)) {
		words = append(words, word)
	}
	require.Equal(t, "OK", peer.Ask(t, addr, words...))
}

// shareALimit starts two cellservers with the same arguments. check-store reports no problem, and
// when the first cellserver has used up a limit, the second refuses.
func shareALimit(t *testing.T, args []string) {
	check := []string{"check-store", args[1]}
	for i, word := range args {
		if word == "--store-prefix" || word == "--store-password-file" {
			check = append(check, args[i:i+2]...)
		}
	}
	report, err := peer.CheckStore(t, func() ([]byte, error) { return peer.Command(check...).CombinedOutput() })
	require.NoError(t, err, report)
	assert.Contains(t, report, "rights             complete\n")
	for i := range int64(2) {
		server := peer.StartPlain(t, args...)
		peer.Says(t, server.Addr, "store_reached:1", "info", "store")
		reply := peer.Ask(t, server.Addr, "CL.THROTTLE", "{user123}:minute", 0, 1, 100_000)
		assert.Equal(t, i, reply.([]any)[0])
	}
}
