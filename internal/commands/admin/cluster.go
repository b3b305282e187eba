package admin

import (
	"slices"

	"cellserver/internal/command"
)

// Commands that Redis serves in cluster mode alone are refused with Redis's error, from which
// clients learn that this is a single server.

const noCluster = "Refused: this server is not part of a cluster."

var cluster = command.Command{
	Name: "cluster", Group: "cluster", Category: "none", Since: "3.0.0", Complexity: "O(1)", Min: 2,
	Summary: noCluster, Args: []command.Arg{command.Word("subcommand").Many()}, Reply: "An error.",
	Run: refuseCluster,
	Subs: slices.Concat(
		clusterRows(command.Stale, 0, "info", "links", "myid", "nodes", "shards", "slots"),
		clusterRows(command.Loading|command.Stale, 0, "help"),
		clusterRows(command.Stale, 1, "countkeysinslot", "keyslot"), clusterRows(command.Stale, 2, "getkeysinslot"),
		clusterRows(clusterAdmin, 0, "bumpepoch", "flushslots", "saveconfig"),
		clusterRows(clusterAdmin, 1,
			"count-failure-reports", "forget", "replicas", "replicate", "set-config-epoch", "slaves"),
		clusterRows(clusterAdmin, atLeast, "failover", "reset"),
		clusterRows(clusterAdmin, 1+atLeast, "addslots", "delslots"),
		clusterRows(clusterAdmin, 2+atLeast, "addslotsrange", "delslotsrange", "meet", "setslot"),
	),
}

const (
	clusterAdmin = command.Admin | command.Dangerous | command.Stale
	atLeast      = 1 << 8 // added to a number of words: so many or more
)

// clusterRows returns subcommands with so many arguments; if atLeast is added to words, with
// so many or more.
func clusterRows(flags command.Flags, words int, names ...string) (rows []*command.Command) {
	for _, name := range names {
		row := &command.Command{
			Name: "cluster|" + name, Group: "cluster", Category: "none", Since: "3.0.0",
			Complexity: "O(1)", Flags: flags, Summary: noCluster, Reply: "An error.",
			Run: refuseCluster, AnyMore: words >= atLeast,
		}
		for range words % atLeast {
			row.Args = append(row.Args, command.Word("arg"))
		}
		rows = append(rows, row)
	}
	return rows
}

var readOnly = command.Command{
	Name: "readonly", Group: "cluster", Category: "connection", Since: "3.0.0", Complexity: "O(1)",
	Flags: command.Loading | command.Stale | command.Fast, Cost: command.Constant,
	Summary: noCluster, Reply: "An error.", Run: refuseCluster,
}

var readWrite = command.Command{
	Name: "readwrite", Group: "cluster", Category: "connection", Since: "3.0.0", Complexity: "O(1)",
	Flags: command.Loading | command.Stale | command.Fast, Cost: command.Constant,
	Summary: noCluster, Reply: "An error.", Run: refuseCluster,
}

var asking = command.Command{
	Name: "asking", Group: "cluster", Category: "connection", Since: "3.0.0", Complexity: "O(1)",
	Flags: command.Fast, Cost: command.Constant, Summary: noCluster, Reply: "An error.",
	Run: refuseCluster,
}

func refuseCluster(*command.Call) error { return command.ErrNoCluster }
