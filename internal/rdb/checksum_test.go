package rdb

import (
	"hash/crc64"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChecksum(t *testing.T) {
	require.Equal(t, uint64(0xe9c6d914c4b8d9ca), checksum(0, []byte("123456789")))
	require.Zero(t, checksum(0, nil))
	table := crc64.MakeTable(jones)
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 200 {
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(random.Uint32())
		}
		want := ^crc64.Update(^uint64(0), table, p)
		require.Equal(t, want, checksum(0, p))
		require.Equal(t, want, checksum(checksum(0, p[:n/3]), p[n/3:]), "in pieces")
	}
}
