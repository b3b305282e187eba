package acl

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Users are those that there are, by name. There is always one named default.
type Users map[string]*User

// Sorted lists them by name.
func (us Users) Sorted() (list []*User) {
	for _, name := range slices.Sorted(maps.Keys(us)) {
		list = append(list, us[name])
	}
	return list
}

// String is an ACL file: a line a user.
func (us Users) String() string {
	var out strings.Builder
	for _, u := range us.Sorted() {
		out.WriteString(u.String() + "\n")
	}
	return out.String()
}

// Parse reads an ACL file: all its users, or the faults in it, in Redis's words, with the file's
// name and the line. No fault names a rule that may hold a password.
func (c *Commands) Parse(path, text string, channels bool) (Users, error) {
	const longest = 16 << 10 // bytes of faults: who reads them has enough to do by then
	users := make(Users)
	faults, number := "", 0
	for line := range strings.Lines(text) {
		number++
		if line = strings.Trim(line, " \t\r\n"); line != "" && len(faults) < longest {
			faults += users.add(c, line, fmt.Sprintf("%s:%d", path, number), channels)
		}
	}
	if faults != "" {
		return nil, errors.New(faults +
			"WARNING: ACL errors detected, no change to the previously active ACL rules was performed")
	}
	if users["default"] == nil {
		users["default"] = c.Default()
	}
	return users, nil
}

// MaxUsers is how many users there may be.
const MaxUsers = 1 << 16

// add adds the user of a line, or says what is wrong with it, and where.
func (us Users) add(c *Commands, line, where string, channels bool) (fault string) {
	words := strings.Split(line, " ")
	switch {
	case words[0] != "user" || len(words) < 2:
		return where + " should start with user keyword followed by the username. "
	case !IsName(words[1]):
		return fmt.Sprintf("'%s: username '%.256s' contains invalid characters. ", where, words[1])
	case us[words[1]] != nil:
		return fmt.Sprintf("WARNING: Duplicate user '%.256s' found on line %s. ", words[1],
			where[strings.LastIndexByte(where, ':')+1:])
	case len(us) >= MaxUsers:
		return fmt.Sprintf("%s: there are too many users (%d). ", where, MaxUsers)
	}
	rules := words[2:]
	for i := range rules {
		rules[i] = strings.Trim(rules[i], "\t\r\n")
	}
	u := c.New(words[1], channels)
	us[u.name] = u
	changed, err := u.With(rules, channels)
	var wrong *RuleError
	switch {
	case err == nil:
		us[u.name] = changed
		return ""
	case errors.As(err, &wrong) && wrong.Unknown:
		return fmt.Sprintf("%s: Error in applying operation '%.256s': %s. ", where, wrong.Rule, wrong.Why)
	case errors.As(err, &wrong):
		return fmt.Sprintf("%s: %s. ", where, wrong.Why)
	}
	return where + ": Unmatched parenthesis in selector definition."
}
