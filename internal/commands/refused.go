package commands

// What Redis has only in cluster mode is refused in its words: clients find out by them that this is one server alone.

var cluster = Command{
	Name: "cluster", Group: "cluster", Since: "3.0.0", Complexity: "O(1)",
	Summary: "Refused: this server is not part of a cluster.",
	Args:    []Arg{Word("subcommand").Many()}, Reply: "An error.", Run: refuseCluster,
}

var readOnly = Command{
	Name: "readonly", Group: "cluster", Category: "connection", Since: "3.0.0", Complexity: "O(1)", Flags: Loading | Stale | Fast,
	Summary: "Refused: this server is not part of a cluster.", Reply: "An error.", Run: refuseCluster,
}

var readWrite = Command{
	Name: "readwrite", Group: "cluster", Category: "connection", Since: "3.0.0", Complexity: "O(1)", Flags: Loading | Stale | Fast,
	Summary: "Refused: this server is not part of a cluster.", Reply: "An error.", Run: refuseCluster,
}

var asking = Command{
	Name: "asking", Group: "cluster", Category: "connection", Since: "3.0.0", Complexity: "O(1)", Flags: Fast,
	Summary: "Refused: this server is not part of a cluster.", Reply: "An error.", Run: refuseCluster,
}

func refuseCluster(*Call) error { return errNoCluster }
