package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/store/memory"
)

// newInstance creates an instance from a configuration, as run does.
func newInstance(t *testing.T, c *config) (*commands.Instance, error) {
	data := memory.New(memory.Options{})
	t.Cleanup(func() { data.Close() })
	if err := c.loadPassword(); err != nil {
		return nil, err
	}
	return commands.New(commands.Config{Store: data, Settings: c.commands, Options: &c.options, ACLFile: c.access.file()})
}

func writeFile(t *testing.T, text string) (path string) {
	path = filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o640))
	return path
}

// accessCase is a configuration of passwords, users and command names.
type accessCase struct {
	args, environ []string
	closed        bool   // whether clients need a password
	says          string // the error; empty for none
}

func (c accessCase) check(t *testing.T) {
	config, err := parseConfig(c.args, c.environ)
	if err == nil {
		var in *commands.Instance
		in, err = newInstance(t, config)
		require.Equal(t, c.closed, err == nil && in.NeedsPassword(), "%q", c.args)
	}
	if c.says == "" {
		require.NoError(t, err, "%q", c.args)
		return
	}
	require.ErrorContains(t, err, c.says, "%q", c.args)
	require.NotContains(t, err.Error(), "secret", "%q", c.args)
}

// TestAccess checks passwords and users from options, the environment and files. Contradictions are
// errors at the start, which contain no password.
func TestAccess(t *testing.T) {
	good := writeFile(t, "user alice on >secret ~* +@all\n")
	for _, c := range slices.Concat(passwordCases(t, good), userCases(t, good), renameCases) {
		c.check(t)
	}
}

func passwordCases(t *testing.T, good string) []accessCase {
	return []accessCase{
		{},
		{args: []string{"--requirepass", "secret"}, closed: true},
		{environ: []string{"CELLSERVER_REQUIREPASS=secret"}, closed: true},
		{args: []string{"--requirepass-file", writeFile(t, "secret\r\nother\n")}, closed: true},
		{args: []string{"--requirepass-file", writeFile(t, "secret")}, closed: true},
		{args: []string{"--requirepass-file", writeFile(t, "\nsecret")}, says: "is empty"},
		{args: []string{"--requirepass-file", "nosuch"}, says: "--requirepass-file: stat nosuch: no such file or directory"},
		{args: []string{"--requirepass-file", writeFile(t, strings.Repeat("x", 65537))}, says: "is longer than 65536 bytes"},
		{args: []string{"--requirepass", "secret", "--requirepass-file", good},
			says: "--requirepass and --requirepass-file cannot be used together"},
		{args: []string{"--requirepass", strings.Repeat("secret", 3000)}, says: "a password has at most 16384 bytes"},
	}
}

func userCases(t *testing.T, good string) []accessCase {
	return []accessCase{
		{args: []string{"--user", "alice on >secret", "--user", "bob off"}},
		{environ: []string{"CELLSERVER_USER=alice on >secret\n  bob off\n\n"}},
		{environ: []string{"CELLSERVER_USER=default on >secret"}, closed: true},
		{args: []string{"--user", "default on >secret ~* +@all"}, closed: true},
		{args: []string{"--user", "default on >secret", "--requirepass", "secret"}, says: "--requirepass has no effect"},
		{args: []string{"--user", "alice", "--user", "alice"}, says: "the user 'alice': Duplicate user found."},
		{args: []string{"--user", "alice >secret <secret2"}, says: "the user 'alice': The password you are trying to remove"},
		{args: []string{"--user", "alice +nosuch"}, says: "the user 'alice': Error in ACL SETUSER modifier '+nosuch'"},
		{args: []string{"--aclfile", good}},
		{args: []string{"--aclfile", good, "--user", "bob"}, says: "--user and --aclfile cannot be used together"},
		{args: []string{"--aclfile", good, "--requirepass", "secret"}, says: "--requirepass has no effect"},
		{args: []string{"--aclfile", "nosuch"}, says: "Error loading ACLs, opening file 'nosuch': no such file or directory"},
		{args: []string{"--aclfile", writeFile(t, "\nuser a >secret !secret\n")},
			says: ":2: The password hash must be exactly 64"},
		{args: []string{"--acl-pubsub-default", "some"}, says: "it must be one of resetchannels, allchannels"},
	}
}

var renameCases = []accessCase{
	{args: []string{"--rename-command", "flushall \"\" config cfg"}},
	{args: []string{"--rename-command", "nosuch x"}, says: "--rename-command: there is no command nosuch"},
	{args: []string{"--rename-command", "get set"}, says: "--rename-command: there is a command set already"},
	{args: []string{"--rename-command", "get"}, says: "it must be a command and a name for it"},
}

// TestSecretsOfTheEnvironment checks that an error names the environment variable, without a
// password.
func TestSecretsOfTheEnvironment(t *testing.T) {
	_, err := parseConfig(nil, []string{"CELLSERVER_ACLLOG_MAX_LEN=secret"})
	require.ErrorContains(t, err, "secret")
	c, err := parseConfig([]string{"--requirepass", "hidden", "--user", "a >hidden", "--store-password", "hidden",
		"--store", "redis://u:hidden@host", "--webhook", "https://host/hidden", "--envoy-xds-headers", "a:hidden"}, nil)
	require.NoError(t, err)
	for _, v := range c.options.Matching(func(name string) bool { return name != "requirepass" }) {
		require.NotContains(t, v.Value, "hidden", v.Name)
		require.NotContains(t, []string{"user", "rename-command"}, v.Name)
	}
	require.NotContains(t, c.usage(), "hidden")
}

// TestClientKnowsTheServersPassword checks that the client finds the server's password in the
// environment.
func TestClientKnowsTheServersPassword(t *testing.T) {
	for _, c := range []struct{ password, file, want string }{
		{"", "", ""}, {"secret", "", "secret"}, {"", writeFile(t, "of-file\n"), "of-file"}, {"", "nosuch", ""},
	} {
		t.Setenv("CELLSERVER_REQUIREPASS", c.password)
		t.Setenv("CELLSERVER_REQUIREPASS_FILE", c.file)
		require.Equal(t, c.want, environmentPassword())
	}
}

func TestACLFileIsReplacedWhole(t *testing.T) {
	path := writeFile(t, "before")
	link := path + ".link"
	require.NoError(t, os.Symlink(path, link))
	f := aclFile(link)
	require.NoError(t, f.Save("after\n"))
	text, err := f.Load()
	require.NoError(t, err)
	require.Equal(t, "after\n", text)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o640, info.Mode(), "as it was")
	info, err = os.Lstat(link)
	require.NoError(t, err)
	require.Equal(t, os.ModeSymlink, info.Mode().Type(), "the link goes on to it")

	fresh := aclFile(filepath.Join(t.TempDir(), "users"))
	require.NoError(t, fresh.Save("x"))
	info, err = os.Stat(string(fresh))
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode())

	gone := aclFile(filepath.Join(t.TempDir(), "nosuch", "users"))
	require.Error(t, gone.Save("x"))
	directory := aclFile(t.TempDir())
	require.Error(t, directory.Save("x"), "what cannot be replaced")
	left, err := os.ReadDir(filepath.Dir(string(directory)))
	require.NoError(t, err)
	for _, file := range left {
		require.NotContains(t, file.Name(), ".tmp-", "and nothing is left behind")
	}
	_, err = directory.Load()
	require.Error(t, err)
	require.False(t, errors.Is(err, os.ErrNotExist))
}

func TestSecretsAreHidden(t *testing.T) {
	for said, want := range map[string]string{
		"cellserver --requirepass secret --port 1":       "cellserver --requirepass ****** --port 1",
		"cellserver --requirepass=secret":                "cellserver --requirepass=******",
		"cellserver --user secret --user secret":         "cellserver --user ****** --user ******",
		"cellserver --requirepass-file path --aclfile f": "cellserver --requirepass-file path --aclfile f",
		"cellserver cli -a secret -p 1 PING":             "cellserver cli -a ****** -p 1 PING",
		"cellserver cli -asecret --pass secret PING":     "cellserver cli -a****** --pass ****** PING",
		"cellserver --requirepass":                       "cellserver --requirepass",
		"cellserver --store-password secret":             "cellserver --store-password ******",
		"cellserver --webhook https://host/secret":       "cellserver --webhook *******************",
		"cellserver --webhook-secret-file path":          "cellserver --webhook-secret-file path",
		"cellserver --envoy-xds-headers a:secret":        "cellserver --envoy-xds-headers ********",
		"cellserver --store redis://u:secret@host":       "cellserver --store redis://********@host",
		"cellserver import redis://me:secret@host:1/0":   "cellserver import redis://*********@host:1/0",
		"cellserver import redis://host:1/0":             "cellserver import redis://host:1/0",
		"--requirepass secret":                           "--requirepass secret", // the name of the program
	} {
		args := strings.Fields(strings.Clone(said))
		for i := range args {
			args[i] = string([]byte(args[i])) // memory that may be written to
		}
		copied := hideSecrets(args)
		require.Equal(t, want, strings.Join(args, " "))
		require.Equal(t, said, strings.Join(copied, " "))
	}
}
