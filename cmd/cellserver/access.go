package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"cellserver/internal/commands"
)

// access is what the options say of who may do what.
type access struct {
	password, passwordFile string
	aclFile                string
	users                  [][]string // each a name and its rules
	channels               string     // what new users may use of them
	logged                 int        // entries of ACL LOG
	renamed                [][2]string
	protectedConfigs       string
}

func (a *access) define(f *pflag.FlagSet) {
	f.Var(secret{&a.password}, "requirepass", "password of the user default; better in a file, or in the environment")
	f.StringVar(&a.passwordFile, "requirepass-file", "", "file whose first line is that password")
	f.StringVar(&a.aclFile, "aclfile", "", "file of users, a line each as ACL LIST shows them: read at the start and by ACL LOAD, written by ACL SAVE")
	f.Var(users{&a.users}, "user", "a user and its rules, such as 'alice on #HASH ~app:* +@all'; again for another, or in the environment on lines of their own")
	a.channels, a.logged, a.protectedConfigs = "resetchannels", 128, "no"
	f.Var(choice{&a.channels, []string{"resetchannels", "allchannels"}}, "acl-pubsub-default", "what new users may use of the channels")
	f.Var(number{&a.logged, 0, 100_000}, "acllog-max-len", "refused calls and passwords that ACL LOG keeps")
	f.Var(renames{&a.renamed}, "rename-command", `a command and the name that it is to have, or "" for none: 'FLUSHALL ""'; again for another`)
	f.Var(choice{&a.protectedConfigs, []string{"no", "yes", "local"}}, "enable-protected-configs", "who may change protected settings by CONFIG SET: nobody, everybody, or who is on this machine")
}

// apply tells an instance, before it serves anybody.
func (a *access) apply(in *commands.Instance) error {
	for _, r := range a.renamed {
		if err := in.Rename(r[0], r[1]); err != nil {
			return fmt.Errorf("--rename-command: %w", err)
		}
	}
	password, err := a.readPassword()
	if err != nil {
		return err
	}
	hasDefault := false
	for _, user := range a.users {
		hasDefault = hasDefault || user[0] == "default"
	}
	switch {
	case a.aclFile != "" && len(a.users) > 0:
		return errors.New("there are users by --user and in --aclfile: they are in one place or in the other")
	case password != "" && (a.aclFile != "" || hasDefault):
		return errors.New("the rules of the user default, by --aclfile or --user, say what its password is, so --requirepass would mean nothing")
	}
	return in.SetAccounts(commands.Accounts{Password: password, Users: a.users, Channels: a.channels == "allchannels", Log: a.logged})
}

// readPassword is the default user's password, from wherever it is told.
func (a *access) readPassword() (string, error) {
	const longest = 64 << 10
	switch {
	case a.passwordFile == "":
		return a.password, nil
	case a.password != "":
		return "", errors.New("there is a password by --requirepass and by --requirepass-file: one of them is enough")
	}
	text, err := readBounded(a.passwordFile, longest)
	if err != nil {
		return "", fmt.Errorf("--requirepass-file: %w", err)
	}
	line, _, _ := bytes.Cut(text, []byte{'\n'})
	if line = bytes.TrimSuffix(line, []byte{'\r'}); len(line) == 0 {
		return "", fmt.Errorf("--requirepass-file: the first line of %s is empty", a.passwordFile)
	}
	return string(line), nil
}

// file is where users are kept, nil if nowhere.
func (a *access) file() commands.ACLFile {
	if a.aclFile == "" {
		return nil
	}
	return aclFile(a.aclFile)
}

// secret is a word that nobody is to see. It is copied: see hideSecrets.
type secret struct{ to *string }

func (s secret) Set(text string) error { *s.to = text; return nil }
func (s secret) Type() string          { return "password" }

func (s secret) String() string {
	if s.to == nil || *s.to == "" {
		return ""
	}
	return "(redacted)"
}

// users are a user a line, its name and its rules. What is wrong with them is said when there are commands that rules are about.
type users struct{ to *[][]string }

func (u users) Set(text string) error {
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 {
			*u.to = append(*u.to, words)
		}
	}
	return nil
}

func (u users) String() string { return "" }
func (u users) Type() string   { return "rules" }

// isSecret says whether an option may hold a password.
func isSecret(f *pflag.Flag) bool {
	switch f.Value.(type) {
	case secret, users:
		return true
	}
	return false
}

// renames are pairs of a command's name and another for it.
type renames struct{ to *[][2]string }

func (r renames) Set(text string) error {
	words := strings.Fields(text)
	if len(words)%2 != 0 {
		return errors.New(`it must be a command and a name for it, or "" for none, such as 'FLUSHALL ""'`)
	}
	for ; len(words) > 0; words = words[2:] {
		*r.to = append(*r.to, [2]string{words[0], strings.Trim(words[1], `"'`)})
	}
	return nil
}

func (r renames) String() string { return "" }
func (r renames) Type() string   { return "names" }

func readBounded(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.Size() > most:
		return nil, fmt.Errorf("%s is longer than %d bytes", path, most)
	}
	return os.ReadFile(path)
}
