package limiter

import (
	"fmt"
	"strings"

	"cellserver/internal/command"
	"cellserver/internal/quota"
)

// The errors of CL.ALL name the argument at fault, and the limiter to which it belongs, because a call has up
// to 64 limiters with the same arguments.

// errNoLimiter returns the error for words that do not begin with a whole limiter, the i-th of a call.
func errNoLimiter(i int, words [][]byte) error {
	if len(words) == 0 {
		return errMissing(fmt.Sprintf("limiter %d", i+1))
	}
	f := formOf(words[0])
	if f == nil {
		return command.ErrSyntaxAt(words[0])
	}
	at := min(2, len(words)) // a key may have any name
	for at < len(words) && !endsLimiter(words[at]) {
		at++
	}
	return ofLimiter(i, errMissing(f.argument(at)))
}

// errNoNumber returns the error for a word that is not the number that an argument must be. If the limiter has
// ended before, the number is missing.
func errNoNumber(argument string, word []byte) error {
	if endsLimiter(word) {
		return errMissing(argument)
	}
	return &command.NumberError{Argument: argument, IsTime: argument == "period" || argument == "ttl"}
}

// errMissing is the error for an argument that is missing.
type errMissing string

func (e errMissing) Error() string {
	return fmt.Sprintf("%s: %s is missing", strings.TrimPrefix(string(command.ErrSyntax), "ERR "), string(e))
}

// endsLimiter reports whether a word in place of a number is what follows a limiter: an option, or the next
// limiter.
func endsLimiter(word []byte) bool { return isOption(word) || formOf(word) != nil }

// formOf returns the form of the limiters with a name, or nil.
func formOf(name []byte) *entryForm {
	for i := range entryForms {
		if command.FoldEqual(name, entryForms[i].name) {
			return &entryForms[i]
		}
	}
	return nil
}

// argument returns the name of the i-th word of a limiter. The first word is the name of the limiter.
func (f *entryForm) argument(i int) string { return strings.Fields(f.arguments)[i-1] }

// ofLimiter adds the i-th limiter to an error that names one of its arguments.
func ofLimiter(i int, err error) error {
	of := func(argument string) string { return fmt.Sprintf("%s of limiter %d", argument, i+1) }
	switch e := err.(type) {
	case *command.NumberError:
		return &command.NumberError{Argument: of(e.Argument), IsTime: e.IsTime}
	case errMissing:
		return errMissing(of(string(e)))
	case *quota.ArgumentError:
		return &quota.ArgumentError{Name: of(e.Name), Lo: e.Lo, Hi: e.Hi}
	}
	return err
}
