package access

import (
	"fmt"
	"slices"
	"strings"

	"cellserver/internal/acl"
)

// The settings about who may do what, and about settings that not everybody may change.

// SetPassword gives the default user one password, or none if it is "".
func (as *Accounts) SetPassword(text string) error {
	as.mu.Lock()
	defer as.mu.Unlock()
	rules := []string{"resetpass", ">" + text}
	if text == "" {
		rules = []string{"resetpass", "nopass"}
	}
	u, err := as.Default.User.Load().With(rules, as.Channels.Load())
	if err != nil {
		return fmt.Errorf("a password has at most %d bytes", acl.MaxPassword)
	}
	as.Default.User.Store(u)
	as.password.Store(&text)
	return nil
}

// secrets are the settings whose values MONITOR and SLOWLOG do not show; Redis's among them, in
// case a client mistakes this server for one.
var secrets = []string{"requirepass", "masterauth", "tls-key-file-pass", "tls-client-key-file-pass"}

func IsSecret(name []byte) bool {
	return slices.ContainsFunc(secrets, func(secret string) bool { return strings.EqualFold(secret, string(name)) })
}
