package main

import (
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/redisconf"
	"cellserver/internal/server"
	"cellserver/internal/store"
	"cellserver/test/generated"
)

func TestDefaults(t *testing.T) {
	c, err := parseConfig(nil, nil)
	require.NoError(t, err)
	require.Equal(t, 6379, c.network.port)
	require.Equal(t, "127.0.0.1 -::1", c.network.bind)
	require.Equal(t, 16, c.databases)
	require.Equal(t, 65536, c.commands.MaxKeySize)
	require.Equal(t, 1<<20, c.commands.MaxBulk)
	require.Equal(t, "yes", c.server.ProtectedMode)
	require.EqualValues(t, server.EventLoop, c.server.Transport)
	require.Equal(t, 10000, c.server.MaxClients)
	require.Zero(t, c.server.Timeout)
	require.Equal(t, server.OutputLimit{Hard: 256 << 20, Soft: 64 << 20, SoftDuration: time.Minute}, c.server.Output[0])
	require.Equal(t, 32<<20, c.server.Output[2].Hard)
}

// TestInvalidOptions checks that errors name the option and the valid values.
func TestInvalidOptions(t *testing.T) {
	for _, mistake := range []struct {
		args []string
		says string
	}{
		{[]string{"--port", "65536"}, `invalid argument "65536" for "--port" flag: it must be a number from 0 to 65535`},
		{[]string{"--port", "x"}, `invalid argument "x" for "--port" flag: it must be a number from 0 to 65535`},
		{[]string{"--databases", "0"}, "it must be a number from 1 to 1024"},
		{[]string{"--proto-max-bulk-len", "1 mb"},
			"it must be a size from 1kb to 512mb, written like 65536, 512kb, 64mb or 1gb"},
		{[]string{"--proto-max-bulk-len", "1gb"}, "it must be a size from 1kb to 512mb"},
		{[]string{"--protected-mode", "on"}, "it must be one of yes, no"},
		{[]string{"--transport", "fast"}, "it must be one of event-loop, goroutines"},
		{[]string{"--loglevel", "info"}, "it must be one of debug, verbose, notice, warning, nothing"},
		{[]string{"--unixsocketperm", "999"}, "it must be permissions in octal, such as 770"},
		{[]string{"--client-output-buffer-limit", "normal 1mb"},
			`it must be a class (normal, pubsub or replica), a hard limit, a soft limit and seconds, such as "normal 256mb 64mb 60"`},
		{[]string{"--client-output-buffer-limit", "some 1mb 0 0"}, "it must be a class"},
		{[]string{"--nosuch"}, "unknown option --nosuch; --help lists the options"},
		{[]string{"start"}, `unexpected argument "start": options start with --; see --help`},
		{[]string{"tpo", "--once"}, `unexpected argument "tpo"; did you mean top?`},
		{[]string{"check-stroe", "redis://a"}, `unexpected argument "check-stroe"; did you mean check-store?`},
		{[]string{"redis.conf"}, `unexpected argument "redis.conf": a configuration file is given as --config redis.conf`},
		{[]string{"--daemonize", "no", "--replicaof", "x 1"}, "--replicaof: there is no replication: leave it out"},
	} {
		_, err := parseConfig(mistake.args, nil)
		require.ErrorContains(t, err, mistake.says)
	}
}

// TestWebhookOptions checks the options about the webhook. Neither errors nor options that CONFIG GET shows contain its
// URL.
func TestWebhookOptions(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		return filepath.Join(dir, name)
	}
	const url = "https://example.com/secret"
	for _, of := range []struct {
		args []string
		says string // the error; none if empty
	}{
		{nil, ""},
		{[]string{"--webhook", url, "--webhook-secret-file", file("long", "0123456789abcdef\r\nmore")}, ""},
		{[]string{"--webhook", url, "--webhook-secret-file", file("short", "0123456789abcde\n")}, "have 16 bytes or more"},
		{[]string{"--webhook", url, "--webhook-secret-file", file("empty", "\n")}, "is empty"},
		{[]string{"--webhook", url, "--webhook-secret-file", "/nosuch"}, "--webhook-secret-file: stat /nosuch"},
		{[]string{"--webhook", url}, "--webhook needs --webhook-secret-file"},
		{[]string{"--webhook", "https://u:secret@example.com", "--webhook-secret-file", "f"}, "--webhook: it must be an"},
	} {
		c, err := parseConfig(of.args, nil)
		require.NoError(t, err, "%q", of.args)
		for _, v := range c.options.Matching(func(string) bool { return true }) {
			require.NotContains(t, v.Value, url, v.Name)
		}
		err = c.webhook.Check()
		if err == nil {
			s, opened := c.openWebhook(store.NewStillClock(1), slog.New(slog.DiscardHandler))
			stopWebhook(s)
			require.Equal(t, s == nil, postTo(s) == nil)
			err = opened
		}
		if of.says != "" {
			require.ErrorContains(t, err, of.says, "%q", of.args)
			require.NotContains(t, err.Error(), "secret@", "%q", of.args)
			continue
		}
		require.NoError(t, err, "%q", of.args)
	}
}

// TestStoreOptions checks the options about the store together with others. No error and no option that
// CONFIG GET shows contains a password.
func TestStoreOptions(t *testing.T) {
	for _, of := range []struct {
		args []string
		says string // the error; empty for none
	}{
		{nil, ""},
		{[]string{"--dir", "d", "--store", "memory"}, ""},
		{[]string{"--store", "redis://u:secret@h"}, ""},
		{[]string{"--store", "redis+cluster://h,i", "--store-password", "secret"}, ""},
		{[]string{"--store", "http://u:secret@h"}, "--store: the store's URL has an unknown form; the forms are redis://"},
		{[]string{"--store", "redis://h", "--store-prefix", "{x}"}, "--store-prefix: the prefix of the store's keys may not"},
		{[]string{"--store", "redis://h", "--dir", "d"}, "--dir and --store cannot be used together"},
		{[]string{"--store", "redis://h", "--max-log-limit", "4000"}, ""},
		{[]string{"--store", "redis://h", "--max-log-limit", "4001"}, "--max-log-limit: with --store it is at most 4000"},
		{[]string{"--store", "redis://h", "--store-password", "secret", "--store-password-file", "f"},
			"--store-password and --store-password-file cannot be used together"},
		{[]string{"--store", "redis://h", "--store-tls-ca-cert-file", "f"}, "need a store over TLS: its URL begins with rediss"},
		{[]string{"--store", "rediss://h", "--store-tls-ca-cert-file", "/nosuch"}, "--store-tls-ca-cert-file: stat /nosuch"},
		{[]string{"--store", "rediss://h", "--store-tls-key-file", "/nosuch"}, "--store-tls-cert-file is not given"},
		{[]string{"--store", "rediss://h"}, ""},
	} {
		c, err := parseConfig(of.args, []string{"CELLSERVER_STORE_TIMEOUT=50"})
		require.NoError(t, err, "%q", of.args)
		for _, v := range c.options.Matching(func(string) bool { return true }) {
			require.NotContains(t, v.Value, "secret", v.Name)
		}
		if err = c.checkStore(); of.says != "" {
			require.ErrorContains(t, err, of.says, "%q", of.args)
			require.NotContains(t, err.Error(), "secret", "%q", of.args)
			continue
		}
		require.NoError(t, err, "%q", of.args)
		if c.store.isInMemory() {
			require.Equal(t, 100_000, c.commands.Limiter.MaxLogLimit)
			require.Equal(t, 16, c.databases)
			continue
		}
		require.Equal(t, 4000, c.commands.Limiter.MaxLogLimit)
		require.Equal(t, strings.Contains(of.args[1], "cluster"), c.databases == 1)
	}
}

// TestEnvironment checks that environment variables set options, unless the command line does.
func TestEnvironment(t *testing.T) {
	c, err := parseConfig([]string{"--port", "7000"}, []string{
		"CELLSERVER_PORT=7001", "CELLSERVER_MAX_KEY_SIZE=100", "CELLSERVER_PROTECTED_MODE=no", "PORT=1",
		"CELLSERVER_NOSUCH=x",
	})
	require.NoError(t, err)
	require.Equal(t, 7000, c.network.port, "the environment overrode the command line")
	require.Equal(t, 100, c.commands.MaxKeySize)
	require.Equal(t, "no", c.server.ProtectedMode)
	require.Equal(t, []string{"CELLSERVER_NOSUCH"}, c.unknown)

	_, err = parseConfig(nil, []string{"CELLSERVER_PORT=x"})
	require.EqualError(t, err, "CELLSERVER_PORT=x: it must be a number from 0 to 65535")
	c, err = parseConfig(nil, []string{"CELLSERVER_PORT=tcp://10.0.0.1:6379"})
	require.NoError(t, err, "Kubernetes says this of a service named cellserver")
	require.Equal(t, 6379, c.network.port)
}

// TestDefaultsAreAccepted checks that every option accepts its default as CONFIG GET and --help
// show it.
func TestDefaultsAreAccepted(t *testing.T) {
	c, err := parseConfig(nil, nil)
	require.NoError(t, err)
	for _, o := range c.options.All() {
		for _, text := range []string{o.Kind.String(), o.Kind.Show()} {
			require.NoError(t, o.Kind.Set(text), o.Name)
			require.NoError(t, o.Kind.Check(text), o.Name)
			require.Equal(t, o.Default(), o.Kind.String(), o.Name)
		}
	}
}

// TestSettings checks that CONFIG GET shows every option by its name, and sizes in bytes.
func TestSettings(t *testing.T) {
	c, err := parseConfig([]string{"--port", "7000", "--proto-max-bulk-len", "2mb"}, nil)
	require.NoError(t, err)
	got := make(map[string]string)
	for _, v := range c.options.Matching(func(string) bool { return true }) {
		got[v.Name] = v.Value
	}
	require.Equal(t, "7000", got["port"])
	require.Equal(t, "2097152", got["proto-max-bulk-len"])
	require.Equal(t, "127.0.0.1 -::1", got["bind"])
	require.Equal(t, "normal 268435456 67108864 60 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
		got["client-output-buffer-limit"])
	require.NotContains(t, got, "version")
}

// TestMaxClientsFitsOpenFiles checks that maxclients is lowered to the limit on open files.
func TestMaxClientsFitsOpenFiles(t *testing.T) {
	c := newConfig()
	c.server.MaxClients = 1 << 40
	warned := ""
	c.limitMaxClients(func(message string, _ ...any) { warned = message })
	require.Equal(t, openFiles()-64, c.server.MaxClients)
	require.NotEmpty(t, warned)
}

// TestHelp checks that --help shows the options with their values and defaults, in lines of limited
// length.
func TestHelp(t *testing.T) {
	help := newConfig().usage()
	for line := range strings.Lines(help) {
		require.LessOrEqual(t, len(strings.TrimRight(line, "\n")), 100)
	}
	for _, says := range []string{"Network:\n  --port number\n        TCP port; 0 for none (0 to 65535, default 6379)\n",
		"\nTLS:\n", "\nAccess:\n"} {
		require.Contains(t, help, says)
	}
}

// TestHelpWithWord checks that help WORD shows the entries that mention the word, and nothing else.
func TestHelpWithWord(t *testing.T) {
	var out strings.Builder
	require.NoError(t, helpWith([]string{"--MAXMEMORY-clients"}, &out))
	require.Contains(t, out.String(), "  --maxmemory-clients ")
	require.NotContains(t, out.String(), "--port")
	out.Reset()
	require.NoError(t, helpWith([]string{"replay"}, &out))
	require.Contains(t, out.String(), "cellserver policies replay PATH LOG...")
	out.Reset()
	require.NoError(t, helpWith([]string{"GET"}, &out))
	require.Contains(t, out.String(), "--maxclients", "whose text has the word")
	require.NotContains(t, out.String(), "--maxmemory-clients", "whose text has it only inside of another")
	require.ErrorContains(t, helpWith([]string{"no such", "words"}, &out), `nothing in --help has "no such words"`)
	for _, words := range [][]string{{"CLIENTS", "memory"}, {"memory clients"}} {
		out.Reset()
		require.NoError(t, helpWith(words, &out))
		require.Contains(t, out.String(), "--maxmemory-clients", "%q: all words, in any order", words)
		require.NotContains(t, out.String(), "--maxclients", "it does not mention memory")
	}
}

const configurationPage = "../../docs/configuration.md"

// redisHas are the options that are directives of Redis 7.0, or, like tls-auth-clients-user, of
// Redis 8.6.
const redisHas = "acl-pubsub-default aclfile acllog-max-len appendfsync appendonly bind client-output-buffer-limit " +
	"client-query-buffer-limit databases dbfilename dir enable-debug-command enable-protected-configs " +
	"io-threads latency-monitor-threshold latency-tracking latency-tracking-info-percentiles logfile " +
	"loglevel maxclients maxmemory maxmemory-clients notify-keyspace-events port protected-mode " +
	"proto-max-bulk-len rename-command requirepass save shutdown-timeout slowlog-log-slower-than " +
	"slowlog-max-len stop-writes-on-bgsave-error tcp-backlog tcp-keepalive timeout tls-auth-clients " +
	"tls-auth-clients-user tls-ca-cert-dir tls-ca-cert-file tls-cert-file tls-ciphers tls-ciphersuites " +
	"tls-key-file tls-port tls-prefer-server-ciphers tls-protocols tls-session-caching " +
	"tracking-table-max-keys unixsocket unixsocketperm user"

// TestOwnOptionsSayTheirUse checks that each option that Redis does not have says when to set it.
func TestOwnOptionsSayTheirUse(t *testing.T) {
	c, err := parseConfig(nil, nil)
	require.NoError(t, err)
	for _, o := range c.options.All() {
		own := !o.IsFixed() && !slices.Contains(strings.Fields(redisHas), o.Name)
		require.Equal(t, own, o.Use != "", "%s: a sentence that says when to set it, unless Redis has it", o.Name)
		require.True(t, !own || strings.HasSuffix(o.Use, "."), o.Name)
	}
}

// TestConfigurationPageIsCurrent checks that docs/configuration.md is generated from the options.
func TestConfigurationPageIsCurrent(t *testing.T) {
	text, err := os.ReadFile(configurationPage)
	require.NoError(t, err)
	c := newConfig()
	current := replacePart(t, string(text), "options", c.options.Markdown(prefix))
	current = replacePart(t, current, "directives of Redis", redisconf.Markdown())
	generated.Check(t, configurationPage, current, *rewrite)
}

// replacePart replaces the generated part of a page with a name.
func replacePart(t *testing.T, page, name, part string) string {
	begin, end := "<!-- "+name+": written by make rewrite -->\n", "<!-- end of "+name+" -->"
	before, rest, found := strings.Cut(page, begin)
	require.True(t, found, name)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found, name)
	return before + begin + part + end + after
}

var rewrite = flag.Bool("rewrite", false, "write docs/configuration.md instead of comparing it")
