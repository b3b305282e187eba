package acl

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Users holds all users by name. There is always one named default.
type Users map[string]*User

// Sorted returns the users sorted by name.
func (us Users) Sorted() (list []*User) {
	for _, name := range slices.Sorted(maps.Keys(us)) {
		list = append(list, us[name])
	}
	return list
}

// String returns the text of an ACL file, one line per user.
func (us Users) String() string {
	var out strings.Builder
	for _, u := range us.Sorted() {
		out.WriteString(u.String() + "\n")
	}
	return out.String()
}

// Parse reads the text of an ACL file. It returns all users, or an error that lists every problem
// with file name and line, in the words of Redis. A problem never quotes a rule that may contain a
// password.
func (c *Commands) Parse(path, text string, channels bool) (Users, error) {
	const maxProblems = 16 << 10 // bytes of problems, after which the rest is not checked
	users := make(Users)
	problems, number := "", 0
	for line := range strings.Lines(text) {
		number++
		if line = strings.Trim(line, " \t\r\n"); line != "" && len(problems) < maxProblems {
			problems += users.add(c, line, fmt.Sprintf("%s:%d", path, number), channels)
		}
	}
	if problems != "" {
		return nil, errors.New(problems +
			"WARNING: ACL errors detected, no change to the previously active ACL rules was performed")
	}
	if users["default"] == nil {
		users["default"] = c.Default()
	}
	return users, nil
}

// MaxUsers is the largest number of users.
const MaxUsers = 1 << 16

// add adds the user that a line defines, or returns a description of the problem, with its
// position.
func (us Users) add(c *Commands, line, where string, channels bool) (problem string) {
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
	var ruleError *RuleError
	switch {
	case err == nil:
		us[u.name] = changed
		return ""
	case errors.As(err, &ruleError) && ruleError.Unknown:
		return fmt.Sprintf("%s: Error in applying operation '%.256s': %s. ", where, ruleError.Rule, ruleError.Reason)
	case errors.As(err, &ruleError):
		return fmt.Sprintf("%s: %s. ", where, ruleError.Reason)
	}
	return where + ": Unmatched parenthesis in selector definition."
}
