package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestCompletion checks how Tab completes a line. In the lists, names are as in COMMAND LIST.
func TestCompletion(t *testing.T) {
	c := &completer{names: []string{"acl", "acl|cat", "acl|getuser", "get", "getdel", "cl.throttle", "cl.top"}}
	for line, want := range map[string]string{
		"cl.th": "cl.throttle ", "CL.TH": "CL.THROTTLE ", "cl.": "cl.t", "ac": "acl ", "acl": "acl ", "acl g": "acl getuser ",
		"get": "get", "getd": "getdel ", "nosuch": "nosuch", "get key": "get key",
	} {
		completed, at, ok := c.complete(line, len(line), '\t')
		assert.True(t, ok)
		assert.Equal(t, want, completed)
		assert.Equal(t, len(want), at)
	}
	_, _, ok := c.complete("cl", 2, 'x')
	assert.False(t, ok, "only Tab completes")
	_, _, ok = c.complete("cl", 1, '\t')
	assert.False(t, ok, "in the middle of a line, Tab does nothing")
}

func TestIsHelp(t *testing.T) {
	assert.True(t, isHelp([]string{"HELP"}))
	assert.True(t, isHelp([]string{"?", "set"}))
	assert.True(t, isHelp([]string{"help", "config", "set"}))
	assert.False(t, isHelp([]string{"set"}))
	assert.False(t, isHelp(nil))
}
