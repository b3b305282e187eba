package keyspace

import (
	"errors"
	"fmt"
	"strings"

	"cellserver/internal/command"
	"cellserver/internal/form"
	"cellserver/internal/limit"
	"cellserver/internal/rdb"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// A payload of DUMP is a string as Redis encodes it, with a checksum. The payload of a limiter is
// such a string too: the form of its state, with instants in Unix time, so that the state keeps its
// meaning in another server, and after a restart. (See packages rdb and form.)

// The work (see command.Call) of a payload's bytes: they are copied twice and summed, and of leases
// a table is made, of some dozen bytes each.
const (
	dumpWork    = 4 // of a byte that a key holds
	restoreWork = 8 // of a byte of the payload, and again of a byte of the string in it
)

var dump = command.Command{
	Name: "dump", Group: "generic", Since: "2.6.0",
	Complexity: "O(N) in the size of what the key holds", Flags: command.ReadOnly, Cost: command.Constant,
	Traits: command.ValueSized | command.SeveralSteps, Effort: &command.Effort{PerByte: dumpWork},
	Summary: "Returns what a key holds, as a payload for RESTORE.", KeyAccess: "RO ACCESS", Tips: command.Varying,
	Args: []command.Arg{command.Key("key")},
	Reply: `The payload; nil if there is no such key. Strings and integers have the format of Redis 7.0, which
redis-server restores too. The state of a limiter can be restored only by cellserver.`,
	Run: func(c *command.Call) error {
		key := c.Key()
		work := dumpWork * c.View.StateBytes(c.Context, key)
		if offload(c, work) {
			return nil
		}
		return writeDump(c, key)
	},
}

// offload repeats a call outside the event loop, and returns true, if it takes too much work.
func offload(c *command.Call, work int) bool {
	if work > command.MaxLoopWork && c.Session != nil && !c.InTransaction {
		c.Session.Offload()
		return true
	}
	c.Work += work
	return false
}

func writeDump(c *command.Call, key []byte) error {
	content, e, err := c.ReadContent(key)
	if err != nil {
		return err
	}
	c.CountLookup(e.Kind != limit.None)
	if e.Kind == limit.None {
		c.Out.Null()
		return nil
	}
	payload, err := payloadOf(c, content, e.Kind)
	if err != nil {
		return err
	}
	if err := c.Reserve(len(payload)); err != nil {
		return err
	}
	c.Out.Bulk(payload)
	return nil
}

// payloadOf returns the payload of a value, or of the form of a limiter's state.
func payloadOf(c *command.Call, content []byte, kind limit.Kind) ([]byte, error) {
	switch n, ok := resp.ParseInt(content); {
	case kind == limit.Integer && ok:
		return rdb.AppendIntegerDump(nil, n), nil
	case kind.IsValue():
		return rdb.AppendDump(nil, content), nil
	}
	return dumpOfLimiter(content, c.Server.Clock.Offset())
}

// dumpOfLimiter returns the payload for a form, whose instants are to be shifted to Unix time.
func dumpOfLimiter(content []byte, offset int64) ([]byte, error) {
	if offset != 0 {
		var state form.State
		if err := state.Read(content, 0); err != nil {
			return nil, err
		}
		if !state.Shift(offset) {
			return nil, errInstants
		}
		content = form.Append(nil, &state)
	}
	return rdb.AppendDump(nil, content), nil
}

const (
	errBusyKey   command.Refusal = "BUSYKEY Target key name already exists."
	errTTL       command.Refusal = "ERR Invalid TTL value, must be >= 0"
	errIdleTime  command.Refusal = "ERR Invalid IDLETIME value, must be >= 0"
	errFrequency command.Refusal = "ERR Invalid FREQ value, must be >= 0 and <= 255"
	errPayload   command.Refusal = "ERR DUMP payload version or checksum are wrong"
	errFormat    command.Refusal = "ERR Bad data format"
	errTooLong   command.Refusal = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
	errInstants  command.Refusal = "ERR the instants of the limiter are out of range of the clock"
)

func (k *Family) restore() *command.Command {
	return &command.Command{
		Name: "restore", Group: "generic", Since: "2.6.0",
		Complexity: "O(N) in the size of the payload", Flags: command.Write | command.DenyOOM | command.Dangerous,
		Cost:   command.Constant,
		Traits: command.SeveralSteps,
		Effort: &command.Effort{Fixed: workToRestore}, Events: command.Events{Replaces: true},
		Summary: "Creates a key from a payload of DUMP.", KeyAccess: "OW UPDATE",
		Args: []command.Arg{
			command.Key("key"), command.Word("ttl"), command.Word("serialized-value"), command.Flag("REPLACE").Again(),
			command.Flag("ABSTTL").Again(), command.Word("seconds").After("IDLETIME").Again(),
			command.Word("frequency").After("FREQ").Again(),
		},
		Reply: `OK. The key expires after ttl milliseconds, with ABSTTL at that Unix time; 0 is for no expiry. A limiter has
the expiry of its state, whatever the ttl is. Restoring a limiter needs the permission to make its calls on the key:
` + limit.List(append(limit.OfPolicies[:len(limit.OfPolicies):len(limit.OfPolicies)], limit.Lease), commandName, "or") + `, and of an exemption or a ban CL.EXEMPT.
IDLETIME and FREQ are accepted, and have no effect.`,
		Run: func(c *command.Call) error {
			if offload(c, workToRestore(c.Words)) {
				return nil
			}
			// what it holds, and the copy in the store
			release, err := c.Allocate(2 * rdb.DumpSize(c.Words[payloadWord]))
			if release == nil {
				return err
			}
			defer release()
			if err := k.runRestore(c); err != nil || c.Offloaded {
				return err
			}
			c.Out.Status("OK")
			return nil
		},
	}
}

// payloadWord is the index of the payload in the words of a RESTORE.
const payloadWord = 3

// workToRestore returns the work of a RESTORE, which the first bytes of the payload tell.
func workToRestore(words [][]byte) int {
	if len(words) <= payloadWord {
		return 0
	}
	return restoreWork * (len(words[payloadWord]) + rdb.DumpSize(words[payloadWord]))
}

// restoration holds the arguments of a RESTORE.
type restoration struct {
	key               []byte
	ttl               []byte
	payload           []byte
	replace, absolute bool
}

func (k *Family) runRestore(c *command.Call) error {
	r := restoration{key: c.Key(), ttl: c.Word(), payload: c.Word(), replace: c.Flag(), absolute: c.Flag()}
	if err := checkUse(c.Word(), c.Word()); err != nil {
		return err
	}
	// Redis checks in this order, too. Whether the key exists is checked again when it is
	// written.
	e, err := c.View.Lookup(c.Context, r.key)
	if err == nil {
		err = r.checkAbsent(e)
	}
	if err != nil {
		return err
	}
	expires, err := r.expires(c)
	if err != nil {
		return err
	}
	rec, err := rdb.ReadDumpLimit(r.payload, c.Server.Limits.Load().Bulk)
	switch {
	case errors.Is(err, rdb.ErrVersion), errors.Is(err, rdb.ErrChecksum):
		return errPayload
	case errors.Is(err, rdb.ErrTooLong):
		return errTooLong
	case err != nil:
		return errFormat
	case rec.Type == rdb.Module:
		return refuseType("value of the module " + rec.Module)
	case rec.Type != rdb.String:
		return refuseType(rec.Type.String())
	case form.Marked(rec.Bytes):
		return k.restoreLimiter(c, &r, rec.Bytes)
	}
	return r.restoreValue(c, valueOf(rec), expires)
}

func refuseType(what string) error {
	return command.Refusal(fmt.Sprintf("ERR a %s cannot be restored: keys hold strings, integers and limiters", what))
}

// checkUse checks the values of IDLETIME and FREQ, which exclude each other.
func checkUse(idle, frequency []byte) error {
	n, ok := resp.ParseInt(idle)
	switch {
	case idle != nil && !ok:
		return command.ErrNotAnInteger
	case idle != nil && n < 0:
		return errIdleTime
	case idle != nil && frequency != nil:
		return command.ErrSyntax
	}
	n, ok = resp.ParseInt(frequency)
	switch {
	case frequency != nil && !ok:
		return command.ErrNotAnInteger
	case frequency != nil && (n < 0 || n > 255):
		return errFrequency
	}
	return nil
}

func (r *restoration) checkAbsent(e store.Entry) error {
	if e.Kind != limit.None && !r.replace {
		return errBusyKey
	}
	return nil
}

// expires returns the instant at which a value expires.
func (r *restoration) expires(c *command.Call) (int64, error) {
	switch n, ok := resp.ParseInt(r.ttl); {
	case !ok:
		return 0, command.ErrNotAnInteger
	case n < 0:
		return 0, errTTL
	case n == 0:
		return store.Never, nil
	}
	return c.Expiry(r.ttl, 1, !r.absolute, true)
}

// valueOf returns a value as the store keeps it.
func valueOf(rec rdb.Record) store.Value {
	if rec.IsInteger {
		return store.Value{Integer: rec.Integer, IsInteger: true}
	}
	if n, ok := resp.ParseInt(rec.Bytes); ok {
		return store.Value{Integer: n, IsInteger: true}
	}
	return store.Value{Bytes: rec.Bytes}
}

// restoreValue writes a value. If it has expired already, the key is only removed.
func (r *restoration) restoreValue(c *command.Call, value store.Value, expires int64) error {
	return c.View.Edit(c.Context, r.key, func(e store.Entry, _ []byte) (store.Change, error) {
		change := store.Change{Operation: store.Put, Value: value, Expires: expires}
		if expires <= c.View.Now() {
			change = store.Change{Operation: store.Remove}
		}
		return change, r.checkAbsent(e)
	})
}

// restoreLimiter makes a key hold the state of a form.
func (k *Family) restoreLimiter(c *command.Call, r *restoration, content []byte) error {
	kind, err := form.KindOf(content)
	if err != nil {
		return errForm(err)
	}
	if err := k.authorize(c, kind, r.key); err != nil {
		return err
	}
	most, option := k.MaxLogLimit, "max-log-limit"
	if kind == limit.Lease {
		most, option = k.MaxHolders, "max-holders"
	}
	release, err := c.Allocate(memoryOfState(kind, len(content), most))
	if release == nil {
		return err
	}
	defer release()
	var state form.State
	switch err := state.Read(content, most); {
	case err == form.ErrTooMany:
		return command.Refusal(fmt.Sprintf("ERR the limiter has more than %d entries or holders (%s)", most, option))
	case err != nil:
		return errForm(err)
	}
	offset := c.Server.Clock.Offset()
	if !state.Shift(-offset) {
		return errInstants
	}
	if state.Kind != limit.Quota {
		offset = 0 // the expiry of a quota is still Unix time
	}
	at := inSelected(c, r.key)
	return c.View.Atomically(c.Context, []store.KeyRef{at}, false, func() error {
		e, err := c.View.Lookup(c.Context, r.key)
		if err == nil {
			err = r.checkAbsent(e)
		}
		if err != nil || e.Kind == limit.None && state.Expires() <= c.View.Now()+offset {
			return err
		}
		return c.View.WriteForm(c.Context, r.key, &state)
	})
}

// memoryOfState returns about how many bytes it takes to read a form and to store it, if it has as many
// entries or leases as fit in its length, and no more than most.
func memoryOfState(kind limit.Kind, length, most int) int {
	switch kind {
	case limit.SlidingLog:
		const shortest, entry = 2, 64
		return min(length/shortest, most) * entry
	case limit.Lease:
		const shortest, lease = 4, 256
		return min(length/shortest, most) * lease
	}
	return length
}

// errForm refuses a value that begins like a form.
func errForm(err error) error { return command.Refusal(string(errFormat) + ": " + err.Error()) }

func commandName(kind limit.Kind) string { return strings.ToUpper(kind.Command()) }
