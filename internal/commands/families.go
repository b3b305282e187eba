package commands

import "slices"

// All lists every command, in reading order.
func All() []*Command { return families(new(Limiters), new(Keyspace)) }

// families lists the commands of all families.
func families(limiters *Limiters, keyspace *Keyspace) []*Command {
	return slices.Concat(
		limiters.Commands(),
		Values(),
		keyspace.Commands(),
		[]*Command{
			// Transactions.
			&multi, &exec, &discard, &watchKeys, &unwatch,
			// Publish and subscribe.
			&subscribe, &unsubscribe, &pSubscribe, &pUnsubscribe, &publish, &pubSub, &sSubscribe, &sUnsubscribe, &sPublish,
			// Connection.
			&ping, &echo, &hello, &auth, &aclCommand, &selectDB, &client, &reset, &quit,
			// Server.
			&command, &info, &config, &timeNow, &waitFor, &waitAOF,
			&memory, &role, &lastSave, &save, &bgSave, &lolwut, &function, &script, &module, &shutdown, &debugCommand,
			&slowlog, &latency, &monitor,
			// Refused, because clients branch on the words of the refusal.
			&cluster, &readOnly, &readWrite, &asking,
		})
}

// commands lists the commands of the instance, whose families have its state.
func (in *Instance) commands() []*Command {
	keyspace := &Keyspace{Flushed: in.tracking.flushed, Swapping: in.watches.swap}
	return families(&in.limiters, keyspace)
}
