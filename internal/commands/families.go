package commands

import (
	"slices"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/commands/access"
	"cellserver/internal/commands/admin"
	"cellserver/internal/commands/connection"
	"cellserver/internal/commands/explain"
	"cellserver/internal/commands/keyspace"
	"cellserver/internal/commands/limiter"
	"cellserver/internal/commands/persistence"
	"cellserver/internal/commands/policy"
	"cellserver/internal/commands/pubsub"
	"cellserver/internal/commands/tracking"
	"cellserver/internal/commands/transaction"
	"cellserver/internal/commands/value"
	"cellserver/internal/decide"
)

// families holds the state of each family. Their packages are below this one.
type families struct {
	decider      decide.Decider // of the limiters and the policies
	limiters     limiter.Family
	policies     policy.Family
	explain      explain.Family
	keyspace     keyspace.Family
	accounts     access.Accounts
	channels     pubsub.Channels
	announcer    pubsub.Announcer
	transactions transaction.Watches
	tracking     tracking.Table
	connection   connection.Family
	persistence  persistence.Family
	admin        admin.Admin
}

func newFamilies() *families {
	f := new(families)
	f.limiters.Decider, f.policies.Decider, f.limiters.Policies = &f.decider, &f.decider, &f.policies
	f.decider.Observers = decide.Observers{CountHold: f.policies.CountHold, NoteUse: f.policies.NoteUse,
		Report: f.policies.Report}
	return f
}

// commands lists all commands in reading order.
func (f *families) commands() []*command.Command {
	f.connection.Subcommands = f.tracking.Commands()
	return slices.Concat(
		f.limiters.Commands(), f.policies.Commands(), f.explain.Commands(), value.Commands(), f.keyspace.Commands(),
		f.channels.Commands(),
		f.transactions.Commands(), f.connection.Commands(), f.accounts.Commands(), f.admin.Commands(),
		f.persistence.Commands(),
	)
}

// info lists the parts of INFO that the families write. Parts of the same section are written in this
// order.
func (f *families) info() []command.InfoPart {
	return slices.Concat(
		f.admin.OwnInfo(), []command.InfoPart{f.connection.Info()}, f.tracking.Info(), f.channels.Info(),
		[]command.InfoPart{f.transactions.Info(), f.accounts.Info()}, f.limiters.Info(),
		[]command.InfoPart{f.persistence.Info()}, f.policies.Files.Info(),
	)
}

// cleanups lists what the families do at RESET and at the end of a connection, in this order.
func (f *families) cleanups() []command.Cleanup {
	return []command.Cleanup{
		f.transactions.Cleanup(), f.channels.Cleanup(), f.tracking.Cleanup(), f.connection.Cleanup(),
		f.admin.Monitors.Cleanup(),
	}
}

// All lists all commands in reading order, without a server, for documentation.
func All() []*command.Command {
	f := newFamilies()
	f.admin.Clients = new(client.Registry)
	return f.commands()
}

// Docs returns what COMMAND DOCS replies in RESP2 about a command by its name, without a server; nil if there is no
// such command.
func Docs(name string) []byte { return command.Docs(All(), name) }
