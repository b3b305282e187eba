package command

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// An error that quotes a word of the client is bounded, whatever the length of the word.
func TestSyntaxErrorShowsTheBeginningOfAWord(t *testing.T) {
	assert.EqualError(t, ErrSyntaxAt([]byte("BOGUS")), "ERR syntax error at 'BOGUS'")
	assert.EqualError(t, ErrSyntaxAt(nil), "ERR syntax error at ''")
	long := strings.Repeat("\xff", 1<<20)
	assert.EqualError(t, ErrSyntaxAt([]byte(long)), "ERR syntax error at '"+long[:128]+"'")
}
