package remote

import "cellserver/test/peer"

// start starts the servers of these tests.
var start peer.Starter = peer.StartStore

// native says whether these servers compare and set without a script.
const native = peer.NativeStore
