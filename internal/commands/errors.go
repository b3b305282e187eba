package commands

import (
	"errors"
	"fmt"
	"strings"

	"cellserver/internal/store"
)

// refusal is an error in the words that the client gets, first its class: ERR, WRONGTYPE.
type refusal string

func (r refusal) Error() string { return string(r) }

// The refusals that more than one place speaks, in Redis's words where Redis has some: clients branch on them.
const (
	errSyntax       refusal = "ERR syntax error"
	errNotAnInteger refusal = "ERR value is not an integer or out of range"
	errWrongType    refusal = "WRONGTYPE Operation against a key holding the wrong kind of value"
	errOwnExpiry    refusal = "ERR the expiry of a limiter key follows from its state"
	errNoKey        refusal = "ERR no such key"
	errSameObject   refusal = "ERR source and destination objects are the same"
	errDatabase     refusal = "ERR DB index is out of range"
	errNotAFloat    refusal = "ERR value is not a valid float"
	errOutOfMemory  refusal = "OOM command not allowed when used memory > 'maxmemory'."
	errNoCluster    refusal = "ERR This instance has cluster support disabled"
	errWrongPass    refusal = "WRONGPASS invalid username-password pair or user is disabled."
	errClientName   refusal = "ERR Client names cannot contain spaces, newlines or special characters."
	errLongName     refusal = "ERR Client names cannot be longer than 256 bytes."
	errStopped      refusal = "ERR the client went away before the command came to its end"
)

func errKeyTooLong(bound int) error {
	return refusal(fmt.Sprintf("ERR key is longer than max-key-size (%d bytes)", bound))
}

func errArity(row *Command) error {
	return refusal("ERR wrong number of arguments for '" + row.Name + "' command")
}

func errUnknownSub(container *Command, sub []byte) error {
	return refusal(fmt.Sprintf("ERR unknown subcommand '%.128s'. Try %s HELP.", sub, container.upper()))
}

// errUnknown repeats the name and the first arguments, cut as Redis cuts them: at 128 bytes, quotes and all.
func errUnknown(words [][]byte) error {
	var args strings.Builder
	for _, word := range words[1:] {
		left := 128 - args.Len()
		if left <= 0 {
			break
		}
		fmt.Fprintf(&args, "'%s' ", word[:min(len(word), left)])
	}
	name := words[0][:min(len(words[0]), 128)]
	return refusal(fmt.Sprintf("ERR unknown command '%s', with args beginning with: %s", name, args.String()))
}

// text is the one translator from errors to what a client reads.
func text(err error) string {
	var r refusal
	switch {
	case errors.As(err, &r):
		return string(r)
	case errors.Is(err, store.ErrWrongKind):
		return string(errWrongType)
	case errors.Is(err, store.ErrNotInteger):
		return string(errNotAnInteger)
	case errors.Is(err, store.ErrFull):
		return string(errOutOfMemory)
	default:
		return "ERR " + err.Error()
	}
}
