package admin

import (
	"slices"

	"cellserver/internal/command"
)

// Commands that Redis has in cluster mode alone are refused in Redis's words, by which clients find
// out that this is a single server.

const noCluster = "Refused: this server is not part of a cluster."

var cluster = command.Command{
	Name: "cluster", Group: "cluster", Category: "none", Since: "3.0.0", Complexity: "O(1)", Min: 2,
	Summary: noCluster, Args: []command.Arg{command.Word("subcommand").Many()}, Reply: "An error.",
	Run: refuseCluster,
	Subs: slices.Concat(
		ofCluster(command.Stale, 0, "info", "links", "myid", "nodes", "shards", "slots"),
		ofCluster(command.Loading|command.Stale, 0, "help"),
		ofCluster(command.Stale, 1, "countkeysinslot", "keyslot"), ofCluster(command.Stale, 2, "getkeysinslot"),
		ofCluster(forClusters, 0, "bumpepoch", "flushslots", "saveconfig"),
		ofCluster(forClusters, 1, "count-failure-reports", "forget", "replicas", "replicate", "set-config-epoch", "slaves"),
		ofCluster(forClusters, orMore, "failover", "reset"), ofCluster(forClusters, 1+orMore, "addslots", "delslots"),
		ofCluster(forClusters, 2+orMore, "addslotsrange", "delslotsrange", "meet", "setslot"),
	),
}

const (
	forClusters = command.Admin | command.Dangerous | command.Stale
	orMore      = 1 << 8 // words
)

// ofCluster makes subcommands with so many further words; with orMore added, at least so many.
func ofCluster(flags command.Flags, words int, names ...string) (rows []*command.Command) {
	for _, name := range names {
		row := &command.Command{
			Name: "cluster|" + name, Group: "cluster", Category: "none", Since: "3.0.0",
			Complexity: "O(1)", Flags: flags, Summary: noCluster, Reply: "An error.",
			Run: refuseCluster, AnyMore: words >= orMore,
		}
		for range words % orMore {
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
