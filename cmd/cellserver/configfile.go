package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"

	"cellserver/internal/option"
	"cellserver/internal/redisconf"
)

// fileOptions returns the option that names the configuration file.
func (c *config) fileOptions() []*option.Option {
	return []*option.Option{
		{Name: "config", Group: "Configuration", Kind: option.Text(&c.path, "path"), FlagOnly: true,
			Help: "configuration file, written like redis.conf, which CONFIG REWRITE replaces",
			Use:  "Use it when the options are more than a command line should hold, or when CONFIG REWRITE is to keep changes."},
	}
}

// readConfigFile reads the file of --config, if there is one. isSet reports whether the command line or
// the environment has set an option.
func (c *config) readConfigFile(isSet func(name string) bool) (err error) {
	if c.path == "" {
		return nil
	}
	c.file, err = redisconf.Read(c.path, &c.options, isSet)
	return err
}

// rewriter returns the function for CONFIG REWRITE; nil if there is no configuration file. The function
// replaces the file by one that only the server's user can read, because it may contain passwords.
func (c *config) rewriter() func(users []string) error {
	if c.file == nil {
		return nil
	}
	const private = 0o600
	var one sync.Mutex
	return func(users []string) error {
		one.Lock()
		defer one.Unlock()
		text, err := c.file.Rewritten(func() redisconf.Values { return c.hiddenValues(users) })
		if err != nil {
			return err
		}
		return explainRewrite(replaceFile(c.file.Path, text, private))
	}
}

// explainRewrite adds advice for the operator to an error.
func explainRewrite(err error) error {
	switch {
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("%w: a mounted file, such as one of a ConfigMap, must be changed where it comes from", err)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%w: the server's user must be allowed to write into the folder of the file", err)
	}
	return err
}

// hiddenValues returns the values of options that CONFIG GET does not show, or not completely, and of
// options that a start with others would refuse. The caller has locked the options.
func (c *config) hiddenValues(users []string) redisconf.Values {
	settings := c.commands
	values := redisconf.Values{"user": users, "rename-command": nil, "store-password": nil}
	for _, r := range settings.Renamed {
		to := r[1]
		if to == "" {
			to = `""`
		}
		values["rename-command"] = append(values["rename-command"], r[0]+" "+to)
	}
	if c.store.password != "" {
		values["store-password"] = []string{c.store.password}
	}
	if fitted := c.fittedMemory; fitted == settings.MaxMemory && fitted > 0 {
		values["maxmemory"] = nil // the next container may be of another size
	} else if fitted > 0 {
		values["maxmemory"] = []string{option.FormatSize(settings.MaxMemory)} // also 0, which is the default elsewhere
	}
	if !c.store.isInMemory() {
		values["store"] = []string{c.store.url}
	}
	switch password := settings.Access.Password; {
	case c.access.aclFile != "" || slices.ContainsFunc(users, isDefault):
		values["requirepass"], values["requirepass-file"] = nil, nil
	case c.access.passwordFile != "" && password == c.access.fromFile:
		values["requirepass"] = nil
	case c.access.passwordFile != "":
		values["requirepass-file"] = nil
	}
	return values
}

// isDefault reports whether the rules belong to the user "default".
func isDefault(rules string) bool { return strings.HasPrefix(rules, "default ") }
