//go:build valkey

package remote

import "cellserver/test/peer"

var start peer.Starter = peer.StartValkey

const native = true
