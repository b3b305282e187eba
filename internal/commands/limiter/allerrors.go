package limiter

import (
	"fmt"

	"cellserver/internal/command"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// The errors of CL.ALL name the argument at fault, and the limiter to which it belongs, because a call has up
// to 64 limiters with the same arguments.

// errNoLimiter returns the error for words that do not begin with a whole limiter, the i-th of a call.
func errNoLimiter(i int, words [][]byte) error {
	if len(words) == 0 {
		return command.Refusal(fmt.Sprintf("%s: limiter %d is missing", command.ErrSyntax, i+1))
	}
	return command.ErrSyntaxAt(words[0])
}

// errNoNumber returns the error for a word that is not the number that an argument must be. If the word is an
// option, the number is missing.
func errNoNumber(argument string, word []byte) error {
	if isOption(word) {
		return command.ErrSyntaxAt(word)
	}
	return &command.NumberError{Argument: argument}
}

// numberName returns the name of the i-th number of a limiter.
func numberName(kind store.Kind, i int) string {
	if kind == store.Throttle {
		return [...]string{"max_burst", "count_per_period", "period", "quantity"}[i]
	}
	return [...]string{"limit", "period", "quantity"}[i]
}

// ofLimiter adds the i-th limiter to an error that names one of its arguments.
func ofLimiter(i int, err error) error {
	of := func(argument string) string { return fmt.Sprintf("%s of limiter %d", argument, i+1) }
	switch e := err.(type) {
	case *command.NumberError:
		return &command.NumberError{Argument: of(e.Argument)}
	case *quota.ArgumentError:
		return &quota.ArgumentError{Name: of(e.Name), Lo: e.Lo, Hi: e.Hi}
	}
	return err
}
