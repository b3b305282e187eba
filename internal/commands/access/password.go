package access

import (
	"fmt"
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

// Configured returns the users as the option user defines them: a name and its rules each. The user
// "default" is left out if requirepass alone describes it. There are none if an ACL file has them.
func (as *Accounts) Configured() (lines []string) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if as.File != nil {
		return nil
	}
	implied := as.commands.Default()
	if text := *as.password.Load(); text != "" {
		if with, err := implied.With([]string{"resetpass", ">" + text}, as.Channels.Load()); err == nil {
			implied = with
		}
	}
	for _, u := range as.users().Sorted() {
		if line := u.String(); line != implied.String() {
			lines = append(lines, strings.TrimPrefix(line, "user "))
		}
	}
	return lines
}
