package access

import (
	"fmt"
	"slices"
	"strings"

	"cellserver/internal/acl"
)

// SetPassword replaces all passwords of the user "default" by one; if text is "", the user needs
// none.
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

// secrets are the settings whose values MONITOR and SLOWLOG do not show. Some exist in Redis only,
// but a client may try to set them here.
var secrets = []string{"requirepass", "masterauth", "tls-key-file-pass", "tls-client-key-file-pass"}

// IsSecret reports whether the value of a setting must not be shown.
func IsSecret(name []byte) bool {
	return slices.ContainsFunc(secrets, func(secret string) bool { return strings.EqualFold(secret, string(name)) })
}
