package commands

import "strings"

// All lists every command.
func All() []*Command {
	return []*Command{
		// Limiters.
		&clThrottle, &clFixed, &clSliding, &clSlidingLog, &clAcquire, &clRenew, &clRelease, &clHolders, &clAll, &gcraCommand,
		&clInspect, &clTop,
		// Values.
		&incr, &incrBy, &decr, &decrBy, &incrByFloat, &incrEX,
		&get, &set, &setNX, &setEX, &pSetEX, &getSet, &getDel, &getEX, &mGet, &mSet, &mSetNX, &mSetEX,
		&digestOf, &delEX,
		&appendTo, &strLen, &getRange, &setRange, &subStr,
		// Keys.
		&exists, &del, &unlink, &touch, &keyType, &rename, &renameNX, &copyKey, &move,
		&expire, &pExpire, &expireAt, &pExpireAt, &persist, &ttl, &pttl, &expireTime, &pExpireTime,
		&keys, &scan, &randomKey, &dbSize, &flushDB, &flushAll, &swapDB,
		// Transactions.
		&multi, &exec, &discard, &watchKeys, &unwatch,
		// Publish and subscribe.
		&subscribe, &unsubscribe, &pSubscribe, &pUnsubscribe, &publish, &pubSub, &sSubscribe, &sUnsubscribe, &sPublish,
		// Connection.
		&ping, &echo, &hello, &auth, &aclCommand, &selectDB, &client, &reset, &quit,
		// Server.
		&command, &info, &config, &timeNow, &waitFor, &waitAOF,
		&object, &memory, &role, &lastSave, &save, &bgSave, &lolwut, &function, &script, &module, &shutdown, &debugCommand,
		&slowlog, &latency, &monitor,
		// Refused, because clients branch on the words of the refusal.
		&cluster, &readOnly, &readWrite, &asking,
	}
}

// Table finds rows by name.
type Table struct {
	rows   []*Command
	byName map[string]*Command
	long   map[string]*Command // those of byName whose names are longer than maxName: somebody has renamed them
}

// NewTable works out what follows from the rows, in rows of its own: those that are listed are every table's, and are not changed.
func NewTable(rows []*Command) *Table {
	t := &Table{byName: make(map[string]*Command)}
	for _, row := range rows {
		t.rows = append(t.rows, t.add(row, nil))
	}
	return t
}

func (t *Table) add(listed, parent *Command) *Command {
	row := new(Command)
	*row = *listed
	row.parent = parent
	row.grammar = newGrammar(row)
	if row.Keys == nil {
		row.firstKey, _, _ = row.keyPositions()
	}
	row.access = row.accesses()
	t.byName[row.Name], row.number = row, len(t.byName)
	if parent != nil {
		row.Traits |= parent.Traits // what is said of a container is true of what it contains
	}
	row.Subs = nil
	for _, sub := range listed.Subs {
		row.Subs = append(row.Subs, t.add(sub, row))
	}
	return row
}

// maxName bounds a command's name, so that it can be folded to lower case on the stack.
const maxName = 32

// recent is the row that a session's latest call named, and how it was spelled: most clients say the same command again and
// again, and comparing a few bytes is a quarter of the cost of looking them up.
type recent struct {
	row     *Command
	spelled [maxName]byte
	length  int
}

// lookup is Lookup, with a memory of one name.
func (t *Table) lookup(name []byte, r *recent) *Command {
	if string(name) == string(r.spelled[:r.length]) && r.row != nil {
		return r.row
	}
	row := t.Lookup(name)
	if row != nil && len(name) <= maxName {
		r.row, r.length = row, copy(r.spelled[:], name)
	}
	return row
}

// Lookup finds the row of a name in any case, nil if there is none.
func (t *Table) Lookup(name []byte) *Command {
	var folded [maxName]byte
	if len(name) > maxName {
		return t.lookupLong(name)
	}
	for i, b := range name {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		folded[i] = b
	}
	row := t.byName[string(folded[:len(name)])]
	if row != nil && row.parent != nil {
		return nil // "client|id" is no command of its own
	}
	return row
}

// find is the row of a call, the subcommand's where there is one; nil if there is no such command.
func (t *Table) find(words [][]byte) *Command { return t.Lookup(words[0]).of(words) }

// of is the row of a call whose first word names row: the subcommand's where there is one.
func (row *Command) of(words [][]byte) *Command {
	if row != nil && row.Subs != nil && len(words) > 1 {
		return row.sub(words[1])
	}
	return row
}

// refusal says why a call has no row, in Redis's order: unknown command, unknown subcommand. named is what its first word names.
func (named *Command) refusal(words [][]byte) error {
	if named != nil && named.Traits&HidesSubcommands == 0 {
		return errUnknownSub(named, words[1])
	}
	return errUnknown(words)
}

// sub finds a subcommand by its name in any case.
func (row *Command) sub(name []byte) *Command {
	if len(name) > maxName {
		return nil // which may be a megabyte, and would be looked at once for each
	}
	for _, sub := range row.Subs {
		if _, word, _ := strings.Cut(sub.Name, "|"); strings.EqualFold(string(name), word) {
			return sub
		}
	}
	return nil
}

// Do answers a session's next call: one reply, whatever happens. An error takes back what its row had written.
func (t *Table) Do(s *Session) {
	s.mark = s.out.Mark()
	if err := s.next(); err != nil {
		s.fail(err)
	}
	if s.careful {
		s.holdBack()
	}
	if s.call.tracker != nil {
		s.afterTracked()
	}
}

// fail writes an error in the place of what the call has written.
func (s *Session) fail(err error) {
	row := s.row
	if s.rejected || s.queue != nil {
		row = nil
	}
	s.rejected = false
	s.out.Rewind(s.mark)
	s.out.Error(s.instance.fail(row, err))
}

// next takes the next call and has its row answer it. Of a long call the words are the first, and long is the whole of it:
// then a goroutine beside the loop finds the others.
func (s *Session) next() error {
	call, words := s.ahead.take()
	row, long := call.row.of(words), s.ahead.isLong()
	if s.words, s.call.moved = len(words), 0; long != nil {
		s.words = s.ahead.total
	}
	switch {
	case row == nil && isHTTP(words[0]):
		s.instance.clientLog.Warn("a client speaks HTTP, and is cut off", "peer", s.peer.Remote)
		s.closing = true
		return nil
	case row == nil:
		s.spoil()
		s.rejected = true
		return call.row.refusal(words)
	case !row.grammar.fits(len(words)):
		return s.turnAway(row, errArity(row))
	}
	if s.guarded {
		if err := s.guard(row, words, long); err != nil {
			return err
		}
	}
	if s.careful {
		if err := s.barred(row); err != nil {
			return err
		}
	}
	s.count(row)
	switch {
	case s.subscribed && row.Traits&WhileSubscribed == 0 && s.out.Protocol() == 2:
		return s.turnAway(row, errListening(row))
	case long != nil && row.OverLong != nil:
		return row.OverLong
	case s.queue != nil && row.Flags&NoMulti != 0:
		return s.turnAway(row, refusal("ERR Command not allowed inside a transaction"))
	case s.queue != nil && row.Traits&Unqueued == 0:
		s.tallies[s.tally].calls-- // until EXEC makes it
		return s.enqueue(row, words, long)
	case long != nil && row.takesMany():
		s.parkLong(row, long)
	case row.takesMany() && !row.needsSession() && s.ahead.isHeld() && bytesOf(words) > muchToDo:
		owned := s.takeOver(words)
		s.park(row, func() [][]byte { return owned })
	case long != nil && !row.AnyMore:
		return errSyntax // options that repeat a thousand times
	case row.Cost == Constant && !s.careful:
		return s.call.run(row, words, call.repeats)
	case row.Cost == Unbounded:
		owned := own(words)
		s.park(row, func() [][]byte { return owned })
	default:
		return s.call.timed(row, words, call.repeats)
	}
	return nil
}

// muchToDo is how many bytes of words are too many for an event loop, where a call may have any number of long ones.
const muchToDo = 256 << 10

// takesMany says whether a call of the row may have any number of words, each of which counts.
func (row *Command) takesMany() bool {
	return len(row.Args) > 0 && row.Args[len(row.Args)-1].many
}

// isHTTP says whether a line is from an HTTP request. A web page can make a browser send one to us, with commands in its
// body: so nothing of it is answered, and nothing behind it is read, as in Redis.
func isHTTP(name []byte) bool { return foldEqual(name, "POST") || foldEqual(name, "HOST:") }

// run binds the words and lets the row answer. If the call repeats the one before it, about another key, so does the binding.
func (c *Call) run(row *Command, words [][]byte, repeats bool) (err error) {
	bound := repeats && c.isBound && c.row == row
	c.row, c.words, c.next, c.isBound, c.moved = row, words, 0, false, 0
	c.lasts, c.handedOver = false, false
	switch {
	case bound:
		err = c.checkKey(words[1])
	case row.parent != nil:
		err = c.bind(2)
	default:
		err = c.bind(1)
	}
	if err != nil {
		return err
	}
	c.isBound = true
	if c.tracker != nil {
		return c.runTracked()
	}
	return row.Run(c)
}
