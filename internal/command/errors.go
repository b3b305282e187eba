package command

import (
	"errors"
	"fmt"
	"strings"

	"cellserver/internal/store"
)

// Refusal is an error as the client reads it. It begins with its class: ERR, WRONGTYPE.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// The refusals that several places return. Their texts are Redis's where Redis has the error, because
// clients branch on them.
const (
	ErrSyntax       Refusal = "ERR syntax error"
	ErrNotAnInteger Refusal = "ERR value is not an integer or out of range"
	ErrWrongType    Refusal = "WRONGTYPE Operation against a key holding the wrong kind of value"
	ErrOwnExpiry    Refusal = "ERR the expiry of a limiter key follows from its state"
	ErrNoKey        Refusal = "ERR no such key"
	ErrSameObject   Refusal = "ERR source and destination objects are the same"
	ErrDatabase     Refusal = "ERR DB index is out of range"
	ErrNotAFloat    Refusal = "ERR value is not a valid float"
	errNotInMulti   Refusal = "ERR Command not allowed inside a transaction"
	errOutOfMemory  Refusal = "OOM command not allowed when used memory > 'maxmemory'."
	errStoreDown    Refusal = "STOREDOWN the store cannot be reached: nothing was counted or changed, so the call may be sent again"
	errStoreBusy    Refusal = "STOREBUSY too many calls use the key at the same time: nothing was counted or changed, so the call may be sent again"
	errStoreUnsure  Refusal = "STOREUNSURE the store did not answer in time: the call may have been counted, or have changed its keys"
	ErrNoCluster    Refusal = "ERR This instance has cluster support disabled"
	ErrWrongPass    Refusal = "WRONGPASS invalid username-password pair or user is disabled."
	ErrClientName   Refusal = "ERR Client names cannot contain spaces, newlines or special characters."
	ErrLongName     Refusal = "ERR Client names cannot be longer than 256 bytes."
	ErrLoading      Refusal = "LOADING Redis is loading the dataset in memory"
	ErrStopped      Refusal = "ERR the client disconnected before the command was complete"
)

// MissingAbility describes an ability that a store lacks, the first in what.
func MissingAbility(what store.Abilities) string {
	switch {
	case what&store.Notifies != 0:
		return "the store cannot tell of changes"
	case what&store.Swaps != 0:
		return "the store cannot swap databases"
	case what&store.TracksIdle != 0:
		return "the store does not know when keys were used"
	}
	return "the store does not know how much it holds"
}

// errExternal refuses a command if the keys are in another program.
func errExternal(row *Command, why string) error {
	return Refusal(fmt.Sprintf("ERR %s is not possible if the keys are in another program (--store): %s", row.Upper(), why))
}

// RefuseExternal returns an error that says why a call, or an option of it, is refused, if the keys are in
// another program; otherwise nil.
func (c *Call) RefuseExternal(why string) error {
	if c.Server.Abilities&store.IsExternal == 0 {
		return nil
	}
	return errExternal(c.Row, why)
}

// ErrSyntaxAt is the syntax error of a command that Redis does not have. It shows at
// most 128 bytes of the word at fault.
func ErrSyntaxAt(word []byte) error {
	return Refusal(string(ErrSyntax) + " at '" + Prefix(word, 128) + "'")
}

// NumberError is ErrNotAnInteger of a command that Redis does not have. It names the argument, and the units of
// one that is a time.
type NumberError struct {
	Argument string
	IsTime   bool
}

func (e *NumberError) Error() string {
	text := strings.TrimPrefix(string(ErrNotAnInteger), "ERR ") + ": " + e.Argument
	if e.IsTime {
		text += " (units are ms, s, m, h and d)"
	}
	return text
}

func (c *Call) errKeyTooLong() error {
	return Refusal(fmt.Sprintf("ERR key is longer than max-key-size (%d bytes)", c.Server.MaxKeySize))
}

// ErrArity is Redis's refusal of a call with too few or too many words.
func ErrArity(row *Command) error {
	return Refusal("ERR wrong number of arguments for '" + row.Name + "' command")
}

func errUnknownSubcommand(container *Command, sub []byte) error {
	return Refusal(fmt.Sprintf("ERR unknown subcommand '%.128s'. Try %s HELP.", sub, container.Upper()))
}

// ErrDiskFails refuses a call that may write while the folder cannot be written.
const ErrDiskFails Refusal = "MISCONF cellserver cannot write to its folder (--dir), and commands that may write are refused " +
	"meanwhile (stop-writes-on-bgsave-error). INFO persistence and the log have the reason."

// ErrUnknown quotes the command's name and its first arguments. As in Redis, the name is cut at 128
// bytes, and all arguments together, with their quotes, at about 128.
func ErrUnknown(words [][]byte) error {
	var args strings.Builder
	for _, word := range words[1:] {
		left := 128 - args.Len()
		if left <= 0 {
			break
		}
		fmt.Fprintf(&args, "'%s' ", word[:min(len(word), left)])
	}
	name := words[0][:min(len(words[0]), 128)]
	return Refusal(fmt.Sprintf("ERR unknown command '%s', with args beginning with: %s", name, args.String()))
}

// ErrorText returns the text of an error as the client reads it. Every error reply is made here.
func ErrorText(err error) string {
	var refusal Refusal
	var refused *store.RefusedError
	var hold *store.HoldError
	switch {
	case errors.As(err, &hold):
		return hold.Code + " " + hold.Text
	case errors.As(err, &refusal):
		return string(refusal)
	case errors.Is(err, store.ErrWrongKind):
		return string(ErrWrongType)
	case errors.Is(err, store.ErrNotInteger):
		return string(ErrNotAnInteger)
	case errors.Is(err, store.ErrFull):
		return string(errOutOfMemory)
	case errors.Is(err, store.ErrDown):
		return string(errStoreDown)
	case errors.Is(err, store.ErrContended):
		return string(errStoreBusy)
	case errors.Is(err, store.ErrUnavailable):
		return string(errStoreUnsure)
	case errors.As(err, &refused):
		return refused.Reply
	default:
		return "ERR " + err.Error()
	}
}
