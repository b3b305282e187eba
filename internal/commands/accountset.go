package commands

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cellserver/internal/acl"
)

// The settings about who may do what, and about settings that not everybody may change.

// accountSettings are the instance's own: no flag has a part in them but their first values.
func (in *Instance) accountSettings() []Setting {
	as := &in.accounts
	return []Setting{
		{Name: "requirepass", Value: func() string { return *as.password.Load() }, Set: func(text string) error {
			as.mu.Lock()
			defer as.mu.Unlock()
			return as.setPassword(text)
		}},
		{Name: "acl-pubsub-default", Value: func() string {
			if as.channels.Load() {
				return "allchannels"
			}
			return "resetchannels"
		}, Set: func(text string) error {
			if text != "allchannels" && text != "resetchannels" {
				return errors.New("argument(s) must be one of the following: allchannels, resetchannels")
			}
			as.channels.Store(text == "allchannels")
			return nil
		}},
		{Name: "acllog-max-len", Value: func() string { return strconv.Itoa(as.log.kept()) }, Set: func(text string) error {
			n, err := NumberFrom(text, 0, maxACLLog)
			if err == nil {
				as.log.keep(int(n))
			}
			return err
		}},
	}
}

// setPassword gives the default user one password, or none if it is "". It needs the lock.
func (as *accounts) setPassword(text string) error {
	rules := []string{"resetpass", ">" + text}
	if text == "" {
		rules = []string{"resetpass", "nopass"}
	}
	u, err := as.first.user.Load().With(rules, as.channels.Load())
	if err != nil {
		return fmt.Errorf("a password has at most %d bytes", acl.MaxPassword)
	}
	as.first.user.Store(u)
	as.password.Store(&text)
	return nil
}

// secrets are the settings whose values are shown to nobody but who asks for them by CONFIG GET; protected those that are changed
// only where --enable-protected-configs allows it, as in Redis.
var (
	secrets   = []string{"requirepass", "masterauth", "tls-key-file-pass", "tls-client-key-file-pass"}
	protected = []string{"dir", "dbfilename"}
)

func isSecret(name []byte) bool {
	return slices.ContainsFunc(secrets, func(secret string) bool { return strings.EqualFold(secret, string(name)) })
}

// mayChange says whether a client may change a setting.
func (in *Instance) mayChange(s *Session, name string) bool {
	return !slices.Contains(protected, name) || in.mayDo(in.protected, s)
}
