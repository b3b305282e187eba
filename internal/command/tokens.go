package command

import "cellserver/internal/store"

// IDOption is the option of limiters with the ID token of a call, which is the word after it.
const IDOption = "ID"

// IDArg is this option.
var IDArg = Word("token").Longest(store.MaxToken).After(IDOption).Extra()

// EachToken calls visit for each word of a call of a limiter that may be its ID token. It does not bind
// the words, so it may also find others, such as the word after a key of the name of the option.
func (row *Command) EachToken(words [][]byte, visit func(token []byte)) {
	if row.Traits&Decides == 0 {
		return
	}
	for i := 2; i < len(words)-1; i++ {
		if FoldEqual(words[i], IDOption) {
			visit(words[i+1])
		}
	}
}
