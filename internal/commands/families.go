package commands

import (
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/commands/access"
	"cellserver/internal/commands/keyspace"
	"cellserver/internal/commands/limiter"
	"cellserver/internal/commands/pubsub"
	"cellserver/internal/commands/tracking"
	"cellserver/internal/commands/value"
)

// All lists every command, in reading order.
func All() []*command.Command {
	return families(new(limiter.Family), new(keyspace.Family), new(access.Accounts), new(pubsub.Channels),
		new(tracking.Table))
}

// families lists the commands of all families.
func families(limiters *limiter.Family, keyspace *keyspace.Family, users *access.Accounts, channels *pubsub.Channels,
	tracked *tracking.Table) []*command.Command {
	return slices.Concat(
		limiters.Commands(),
		value.Commands(),
		keyspace.Commands(),
		users.Commands(),
		channels.Commands(),
		[]*command.Command{
			// Transactions.
			&multi, &exec, &discard, &watchKeys, &unwatch,
			// Connection.
			&ping, &echo, &hello, &auth, &selectDB, clientCommand(tracked.Commands()), &reset, &quit,
			// Server.
			&command.Introspection, &info, &config, &timeNow, &waitFor, &waitAOF,
			&memory, &role, &lastSave, &save, &bgSave, &lolwut, &function, &script, &module, &shutdown, &debugCommand,
			&slowlog, &latency, &monitor,
			// Refused, because clients branch on the words of the refusal.
			&cluster, &readOnly, &readWrite, &asking,
		})
}

// commands lists the commands of the instance, whose families have its state.
func (in *Instance) commands() []*command.Command {
	keyspace := &keyspace.Family{OnFlush: in.tracking.InvalidateAll, OnSwap: in.watches.swap}
	return families(&in.limiters, keyspace, &in.accounts, &in.channels, &in.tracking)
}
