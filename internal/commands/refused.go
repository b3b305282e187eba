package commands

import "slices"

// What Redis has only in cluster mode is refused in its words: clients find out by them that this is one server alone.

const noCluster = "Refused: this server is not part of a cluster."

var cluster = Command{
	Name: "cluster", Group: "cluster", Category: "none", Since: "3.0.0", Complexity: "O(1)", Min: 2,
	Summary: noCluster, Args: []Arg{Word("subcommand").Many()}, Reply: "An error.", Run: refuseCluster,
	Subs: slices.Concat(
		ofCluster(Stale, 0, "info", "links", "myid", "nodes", "shards", "slots"), ofCluster(Loading|Stale, 0, "help"),
		ofCluster(Stale, 1, "countkeysinslot", "keyslot"), ofCluster(Stale, 2, "getkeysinslot"),
		ofCluster(forClusters, 0, "bumpepoch", "flushslots", "saveconfig"),
		ofCluster(forClusters, 1, "count-failure-reports", "forget", "replicas", "replicate", "set-config-epoch", "slaves"),
		ofCluster(forClusters, orMore, "failover", "reset"), ofCluster(forClusters, 1+orMore, "addslots", "delslots"),
		ofCluster(forClusters, 2+orMore, "addslotsrange", "delslotsrange", "meet", "setslot"),
	),
}

const (
	forClusters = Admin | Dangerous | Stale
	orMore      = 1 << 8 // words
)

// ofCluster makes subcommands that have so many words more, or at least so many.
func ofCluster(flags Flags, words int, names ...string) (rows []*Command) {
	for _, name := range names {
		row := &Command{
			Name: "cluster|" + name, Group: "cluster", Category: "none", Since: "3.0.0", Complexity: "O(1)", Flags: flags,
			Summary: noCluster, Reply: "An error.", Run: refuseCluster, AnyMore: words >= orMore,
		}
		for range words % orMore {
			row.Args = append(row.Args, Word("arg"))
		}
		rows = append(rows, row)
	}
	return rows
}

var readOnly = Command{
	Name: "readonly", Group: "cluster", Category: "connection", Since: "3.0.0", Complexity: "O(1)", Flags: Loading | Stale | Fast, Cost: Constant,
	Summary: noCluster, Reply: "An error.", Run: refuseCluster,
}

var readWrite = Command{
	Name: "readwrite", Group: "cluster", Category: "connection", Since: "3.0.0", Complexity: "O(1)", Flags: Loading | Stale | Fast, Cost: Constant,
	Summary: noCluster, Reply: "An error.", Run: refuseCluster,
}

var asking = Command{
	Name: "asking", Group: "cluster", Category: "connection", Since: "3.0.0", Complexity: "O(1)", Flags: Fast, Cost: Constant,
	Summary: noCluster, Reply: "An error.", Run: refuseCluster,
}

func refuseCluster(*Call) error { return errNoCluster }
