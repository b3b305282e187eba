package adding

import (
	"crypto/fips140"
	"crypto/sha1"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"strconv"

	"cellserver/internal/limit"
	"cellserver/internal/store/remote/combine"
)

var (
	//go:embed throttle.lua
	throttleScript string
	//go:embed window.lua
	windowScript string

	// The digests are of type any, because they are arguments of commands.
	throttleDigest any = Digest(throttleScript)
	windowDigest   any = Digest(windowScript)
)

// Scripts are the scripts that AppendCommand calls.
var Scripts = []string{throttleScript, windowScript}

// Digest returns the SHA-1 digest by which EVALSHA names a script. It is a name and protects nothing, so it is also
// computed where only the cryptography of FIPS 140-3 is allowed (GODEBUG=fips140=only): see make test-fips.
func Digest(script string) string {
	var sum [sha1.Size]byte
	fips140.WithoutEnforcement(func() { sum = sha1.Sum([]byte(script)) })
	return hex.EncodeToString(sum[:])
}

// AppendCommand appends the command that makes calls, which must fit each other, on a key. The reply is the
// value before the calls, or an array with that value if the script has not made them. If the name of a turn
// key is not empty, the script makes no calls as long as this key exists, and its value is the second element
// of the array.
func AppendCommand(args []any, key, turnKey string, now int64, calls []combine.Adding) []any {
	first := calls[0].(*Call)
	margin := (first.margin + 999_999) / 1_000_000
	if first.rule.Kind == limit.Throttle {
		l := &first.rule.Throttle
		args = appendKeys(append(args, "evalsha", throttleDigest), key, turnKey)
		args = append(args, now, now+int64(l.Tolerance()), int64(l.EmissionInterval()), margin)
	} else {
		var cycle []byte
		ends := int64(first.rule.Window.Period())
		if first.rule.Kind == limit.Quota {
			cycle, ends = cycleForm(first.rule.Cycle), first.rule.Cycle.End(now)
		}
		numbers := make([]byte, 0, 24)
		for _, n := range [...]int64{now, first.rule.Size(), ends} {
			numbers = binary.BigEndian.AppendUint64(numbers, uint64(n))
		}
		mark := "\x00cl1" + string(first.rule.Kind.Letter())
		args = appendKeys(append(args, "evalsha", windowDigest), key, turnKey)
		args = append(args, mark, numbers, margin, cycle)
	}
	return appendGroups(args, calls)
}

func appendKeys(args []any, key, turnKey string) []any {
	if turnKey == "" {
		return append(args, 1, key)
	}
	return append(args, 2, key, turnKey)
}

// appendGroups appends two arguments for each group of equal calls: their quantity and their number. The number is 0
// for a call with UPTO, and -n for the tokens that the call before takes ahead: an nth part of what remains.
func appendGroups(args []any, calls []combine.Adding) []any {
	for i := 0; i < len(calls); {
		c, n := calls[i].(*Call), 1
		for !c.upTo && c.extra.Most == 0 && i+n < len(calls) {
			next := calls[i+n].(*Call)
			if next.upTo || next.extra.Most != 0 || next.quantity != c.quantity {
				break
			}
			n++
		}
		i += n
		if c.upTo {
			n = 0
		}
		args = append(args, strconv.FormatInt(c.quantity, 10), n)
		if c.extra.Most > 0 {
			args = append(args, strconv.FormatInt(c.extra.Most, 10), -c.extra.Share)
		}
	}
	return args
}
