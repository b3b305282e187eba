//go:build !valkey

package remote

import "cellserver/test/peer"

// start starts the servers of these tests. With the build tag valkey, they are Valkey's, which compare
// and set without a script.
var start peer.Starter = peer.StartRedis

// native says whether they do.
const native = false
