package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"cellserver/internal/commands"
	"cellserver/internal/option"
)

// access holds the options for files of passwords and users. The other options about users belong
// to the commands.
type access struct {
	passwordFile, aclFile string
	fromFile              string // the password in passwordFile
}

func (a *access) options() []*option.Option {
	return []*option.Option{
		{Name: "requirepass-file", Group: option.Access, Kind: option.Text(&a.passwordFile, "path"),
			Help: "file whose first line is the password of the user default",
			Use:  "Use it where files hold secrets."},
		{Name: "aclfile", Group: option.Access, Kind: option.Text(&a.aclFile, "path"), Change: option.Immutable,
			Help: "file of users, in lines as ACL LIST shows them: read at the start and by ACL LOAD, written by ACL SAVE"},
	}
}

// loadPassword reads the password file, and returns an error for options that contradict each
// other.
func (c *config) loadPassword() (err error) {
	settings := c.commands
	if settings.Access.Password, err = c.access.readPassword(settings.Access.Password); err != nil {
		return err
	}
	if c.access.passwordFile != "" {
		c.access.fromFile = settings.Access.Password
	}
	hasDefault := slices.ContainsFunc(settings.Access.Users, func(user []string) bool { return user[0] == "default" })
	switch {
	case c.access.aclFile != "" && len(settings.Access.Users) > 0:
		return errors.New("--user and --aclfile cannot be used together")
	case settings.Access.Password != "" && (c.access.aclFile != "" || hasDefault):
		return errors.New("--requirepass has no effect if --aclfile or --user defines the user default: set its password there")
	}
	return nil
}

// readPassword returns the password of the user default: the given one, or the first line of the
// password file.
func (a *access) readPassword(given string) (string, error) {
	switch {
	case a.passwordFile == "":
		return given, nil
	case given != "":
		return "", errors.New("--requirepass and --requirepass-file cannot be used together")
	}
	line, err := firstLine("--requirepass-file", a.passwordFile)
	return string(line), err
}

// environmentPassword returns the server's password from the environment, so that health checks in
// its container can authenticate. It ignores errors, because the server reports them.
func environmentPassword() string {
	of := access{passwordFile: os.Getenv(prefix + "REQUIREPASS_FILE")}
	password, _ := of.readPassword(os.Getenv(prefix + "REQUIREPASS"))
	return password
}

// file returns the ACL file, or nil if there is none.
func (a *access) file() commands.ACLFile {
	if a.aclFile == "" {
		return nil
	}
	return aclFile(a.aclFile)
}

// explain adds to an error of the start what to do if there is no ACL file: the rest of it is in the words of Redis.
func (a *access) explain(err error) error {
	if _, missing := os.Stat(a.aclFile); a.aclFile != "" && errors.Is(missing, fs.ErrNotExist) {
		return fmt.Errorf("%w; create the file: it may be empty, and ACL SAVE writes the users into it", err)
	}
	return err
}

// readBounded reads a file, but not if it is longer than limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.Size() > limit:
		return nil, fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return os.ReadFile(path)
}
