package command

// RedisVersion is the version of Redis that clients see. They branch on it, and the server has what
// they expect of that version.
const RedisVersion = "7.4.0"

// Handshake are the flags of commands that a client sends before it may do anything else.
const Handshake = NoScript | Loading | Stale | Fast | NoAuth | AllowBusy

// AllNodes is a tip for proxies: the command goes to every node of a cluster.
const AllNodes = "request_policy:all_nodes"
